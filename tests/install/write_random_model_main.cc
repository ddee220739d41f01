// write_random_model DIR: a small model for programs that test an installation.
#include <cstdio>

#include "runtime/random_model.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_random_model DIR\n", stderr);
    return 2;
  }
  tarn::WriteRandomModel(argv[1],
                         tarn::TinyConfig(tarn::AttentionKind::kLinear),
                         tarn::Tokenizer::Byte(), 1);
  return 0;
}
