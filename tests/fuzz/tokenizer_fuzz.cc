// tokenizer.json, in tarn's form and in that of Hugging Face. The input: the
// file, a NUL byte, and a text to encode.
#include <algorithm>
#include <string>
#include <vector>

#include "core/files/vocabulary_keys.h"
#include "fuzz/fuzz_input.h"
#include "text/tokenizer.h"

namespace tarn::fuzz {
namespace {

void EncodeText(const Tokenizer& tokenizer, const std::string& text,
                const EncodeOptions& options) {
  const Result<std::vector<int32_t>> ids = tokenizer.Encode(text, options);
  if (!ids.ok()) return CheckRefusal(ids.error());
  DecodeProgress progress;
  std::string streamed;
  for (const int32_t id : ids.value()) {
    Require(id >= 0 && id < tokenizer.vocab_size(), "an id that is none");
    tokenizer.Decode(id, progress, streamed);
  }
  tokenizer.Decode(ids.value());
  tokenizer.DecodeText(ids.value(), false);
  tokenizer.DecodeText(ids.value(), true);
}

void UseTokenizer(const Tokenizer& tokenizer, const std::string& text) {
  EncodeOptions all;
  all.allow_special = all.add_special = true;
  EncodeText(tokenizer, text, {});
  EncodeText(tokenizer, text, all);
  const ByteRange half{text.size() / 3, text.size() / 2};
  if (half.begin < half.end) {
    all.data = {&half, 1};
    EncodeText(tokenizer, text, all);
  }
  const int64_t count = std::min<int64_t>(tokenizer.vocab_size(), 1000);
  for (int64_t id = 0; id < count; ++id) {
    std::string piece;
    tokenizer.Decode(static_cast<int32_t>(id), piece);
  }
  tokenizer.AddedId(text);
  const Result<Tokenizer> again = Tokenizer::FromJson(tokenizer.ToJson());
  Require(again.ok(), "a tokenizer that cannot be read again");
  Require(again.value() == tokenizer, "another tokenizer is read again");
  ++Accepted();
  const Result<VocabularyKeys> keys = tokenizer.ToKeys();
  if (!keys.ok()) return CheckRefusal(keys.error());
  const Result<Tokenizer> of_keys = Tokenizer::FromKeys(keys.value());
  if (of_keys.ok()) EncodeText(of_keys.value(), text, {});
}

}  // namespace
}  // namespace tarn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tarn;
  const std::vector<std::string> parts =
      fuzz::Parts(fuzz::TextOf(data, size), 2);
  fuzz::Try([&] {
    const Result<Tokenizer> opened = Tokenizer::FromJson(parts[0]);
    if (!opened.ok()) return fuzz::CheckRefusal(opened.error());
    fuzz::UseTokenizer(opened.value(), parts[1]);
  });
  return 0;
}
