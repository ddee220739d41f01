// GGUF: keys and tensors of the file, then the file as a model that is checked,
// opened and run for three tokens.
#include <algorithm>
#include <memory>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "fuzz/memory_file.h"
#include "fuzz/read_source.h"
#include "runtime/model/verify.h"
#include "runtime/session/loaded_model.h"
#include "text/template/chat_format.h"
#include "weights/gguf/gguf_file.h"
#include "weights/gguf/gguf_source.h"

namespace tarn::fuzz {
namespace {

void ReadKey(const GgufFile& file, const std::string& key) {
  const uint64_t count = file.CountOf(key);
  Try([&] { file.Integer(key, INT64_MIN, INT64_MAX); });
  Try([&] { file.Real(key, -1e300, 1e300); });
  Try([&] { file.Flag(key); });
  Try([&] { file.Text(key); });
  Try([&] { file.Integers(key, INT64_MIN, INT64_MAX, count); });
  Try([&] { file.Reals(key, count); });
  Try([&] { file.Flags(key, count); });
  Try([&] {
    const GgufStrings& texts = file.Strings(key, count);
    for (size_t i = 0; i < texts.size(); ++i) {
      Require(texts[i].size() <= SIZE_MAX / 2, "a text without an end");
    }
  });
}

void ReadContainer(std::span<const uint8_t> bytes) {
  Result<GgufFile> opened = GgufFile::OfBytes("input", bytes);
  if (!opened.ok()) return CheckRefusal(opened.error());
  const auto file = std::make_shared<const GgufFile>(std::move(opened).Take());
  for (const std::string& key : file->keys()) ReadKey(*file, key);
  ReadSource(*GgufWeights(file));
}

void UseTexts(const Tokenizer& tokenizer, const ModelPath& path) {
  EncodeOptions options;
  options.allow_special = options.add_special = true;
  for (const char* text : {"abc ab", "A<x>\xFF <s>", "0 1 2"}) {
    const auto ids = tokenizer.Encode(text, options);
    if (ids.ok()) tokenizer.DecodeText(ids.value(), false);
  }
  const int64_t count = std::min<int64_t>(tokenizer.vocab_size(), 1000);
  for (int64_t id = 0; id < count; ++id) {
    std::string text;
    tokenizer.Decode(static_cast<int32_t>(id), text);
  }
  const auto format = ChatFormat::Open(path);
  if (!format.ok()) CheckRefusal(format.error());
}

void UseModel(const ModelPath& path) {
  const VerifyReport report = VerifyModel(path);
  for (const Error& error : report.problems) CheckRefusal(error);
  const Result<LoadedModel> opened =
      LoadedModel::Open(path, {WeightType::kF32, 1, true});
  if (!opened.ok()) {
    Require(!report.problems.empty(),
            "verify found nothing, but " + std::string(opened.error().what()));
    return CheckRefusal(opened.error());
  }
  const Model& model = opened.value().model;
  State state(model);
  std::vector<float> logits(static_cast<size_t>(model.n_outputs()));
  model.Prefill(state, std::vector<int32_t>{0, 1, 2}, logits.data());
  UseTexts(opened.value().tokenizer, path);
  ++Accepted();
}

}  // namespace
}  // namespace tarn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tarn;
  const std::span<const uint8_t> bytes(data, size);
  fuzz::Try([&] { fuzz::ReadContainer(bytes); });
  static const fuzz::MemoryFile file;
  file.Set(bytes);
  if (IsGgufFile(file.path())) {
    fuzz::Try([&] { fuzz::UseModel(ModelPath(file.path())); });
  }
  return 0;
}
