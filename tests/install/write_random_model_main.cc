// write_random_model DIR [linear|full|seq2seq|encoder|image]: a small model
// for programs that test an installation.
#include <cstdio>
#include <map>
#include <string>

#include "reference/random_model.h"

int main(int argc, char** argv) {
  using tarn::TinyConfig;
  const std::map<std::string, tarn::ModelConfig> kinds = {
      {"linear", TinyConfig(tarn::MixerKind("linear"))},
      {"full", TinyConfig(tarn::MixerKind("full"))},
      {"seq2seq", TinyConfig(tarn::Arch::kSeq2seq)},
      {"encoder", TinyConfig(tarn::Arch::kEncoder)},
      {"image", tarn::TinyImageConfig(tarn::MixerKind("linear"))}};
  const auto kind = kinds.find(argc == 3 ? argv[2] : "linear");
  if (argc < 2 || argc > 3 || kind == kinds.end()) {
    std::fputs(
        "usage: write_random_model DIR [linear|full|seq2seq|encoder|image]\n",
        stderr);
    return 2;
  }
  tarn::ModelConfig config = kind->second;
  config.positions = tarn::Positions::kSinusoidal;  // for texts of any length
  config.max_positions = tarn::ModelConfig().max_positions;  // not read
  tarn::WriteRandomModel(argv[1], config, tarn::Tokenizer::Byte(), 1);
  return 0;
}
