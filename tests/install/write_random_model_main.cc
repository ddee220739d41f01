// write_random_model DIR [linear|full]: a small model for programs that test an
// installation.
#include <cstdio>
#include <cstring>

#include "runtime/random_model.h"

int main(int argc, char** argv) {
  const char* attention = argc == 3 ? argv[2] : "linear";
  const bool full = std::strcmp(attention, "full") == 0;
  if (argc < 2 || argc > 3 ||
      (!full && std::strcmp(attention, "linear") != 0)) {
    std::fputs("usage: write_random_model DIR [linear|full]\n", stderr);
    return 2;
  }
  const auto kind =
      full ? tarn::AttentionKind::kFull : tarn::AttentionKind::kLinear;
  tarn::WriteRandomModel(argv[1], tarn::TinyConfig(kind),
                         tarn::Tokenizer::Byte(), 1);
  return 0;
}
