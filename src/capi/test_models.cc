#include "capi/test_models.h"

#include <utility>

#include "reference/random_model.h"
#include "text/bpe_tokenizer.h"

namespace tarn_test {

using tarn::AttentionKind;
using tarn::ModelConfig;
using tarn::TinyConfig;
using tarn::Tokenizer;
using tarn::TokenizerKind;

void WriteModels(const std::string& root) {
  const auto write = [&root](const char* name, const ModelConfig& config,
                             const Tokenizer& tokenizer, uint64_t seed) {
    WriteRandomModel(root + "/" + name, config, tokenizer, seed);
  };
  write("linear", TinyConfig(tarn::MixerKind("linear")), Tokenizer::Byte(), 1);
  write("full", TinyConfig(tarn::MixerKind("full")), Tokenizer::Byte(), 2);
  ModelConfig chars = TinyConfig(tarn::MixerKind("linear"));
  chars.vocab_size = 5;
  chars.tokenizer = TokenizerKind::kChar;
  write("char", chars, Tokenizer::Char({'a', 'b', 0x20AC}), 3);
  write("seq2seq", TinyConfig(tarn::Arch::kSeq2seq), Tokenizer::Byte(), 4);
  write("encoder", TinyConfig(tarn::Arch::kEncoder), Tokenizer::Byte(), 5);
  ModelConfig ids = TinyConfig(tarn::MixerKind("linear"));
  ids.vocab_size = 20'000;
  ids.tokenizer = TokenizerKind::kIds;
  write("ids", ids, Tokenizer::Ids(ids.vocab_size), 6);
  ModelConfig nfc = TinyConfig(tarn::MixerKind("linear"));
  nfc.tokenizer = TokenizerKind::kBpe;
  tarn::BpeDefinition bytes;
  bytes.nfc = true;
  for (int b = 0; b < 256; ++b) {
    bytes.tokens.emplace_back(1, static_cast<char>(b));
  }
  write("nfc", nfc, Tokenizer::Bpe(std::move(bytes)), 7);
  ModelConfig head = TinyConfig(tarn::MixerKind("full"));
  head.positions = tarn::Positions::kRotary;
  FinishConfig(head);
  WriteRandomModel(root + "/mtp", head, Tokenizer::Byte(), 9, /*mtp=*/true);
  write("image", tarn::TinyImageConfig(tarn::MixerKind("linear")),
        Tokenizer::Byte(), 8);
}

}  // namespace tarn_test
