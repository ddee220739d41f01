#include "runtime/model/files.h"

#include <utility>

#include "core/text.h"
#include "importers/directory.h"
#include "importers/gguf/text_keys.h"
#include "runtime/model/labels.h"
#include "runtime/weights/weights.h"
#include "weights/gguf/gguf_file.h"

namespace tarn {
namespace {

constexpr const char* kConfigFile = "config.json";

}  // namespace

Result<Tokenizer> OpenTokenizer(const ModelPath& model,
                                const ModelConfig& config) {
  const Result<std::string> text = model.Read(kConfigFile, kMaxConfigBytes);
  if (!text.ok()) return text.error();
  if (!IsPublishedConfig(text.value()) ||
      config.tokenizer == TokenizerKind::kIds) {
    return Tokenizer::Open(model, config);
  }
  Result<Tokenizer> tokenizer = Tokenizer::OpenAlone(model);
  if (!tokenizer.ok()) return tokenizer;
  if (auto error = tokenizer.value().CheckFits(config)) {
    if (!model.HasVocabulary()) return *error;
    return FormatError(StrCat(model.path(), ": tokenizer.ggml.tokens"),
                       StrCat("at most ", config.vocab_size,
                              " tokens, the rows of the embedding"),
                       StrCat(tokenizer.value().vocab_size()));
  }
  return tokenizer;
}

Result<Tokenizer> OpenTokenizerFile(const std::string& path) {
  if (!IsGgufFile(path)) return Tokenizer::OpenFile(path);
  // Of any architecture, and of files without weights.
  const Result<GgufFile> file = GgufFile::Open(path);
  if (!file.ok()) return file.error();
  try {
    Result<Tokenizer> tokenizer =
        Tokenizer::FromKeys(VocabularyOf(file.value()));
    if (tokenizer.ok()) return tokenizer;
    const Error& error = tokenizer.error();
    return FormatError(StrCat(path, ": ", error.where()), error.wanted(),
                       error.given());
  } catch (const Error& error) {
    return FormatError(error.where(), error.wanted(), error.given());
  }
}

Result<ModelFiles> OpenModelFiles(const ModelPath& model,
                                  const ModelConfig& config, bool use_mmap) {
  const auto weights = OpenNamedWeights(model, config, use_mmap);
  if (!weights.ok()) return weights.error();
  if (auto error = CheckWeights(*weights.value(), config)) return *error;
  std::vector<std::string> labels;
  if (HasLabels(config.task)) {
    Result<std::vector<std::string>> read = ReadLabels(model.path(), config);
    if (!read.ok()) return read.error();
    labels = std::move(read).Take();
  }
  return ModelFiles{weights.value(), std::move(labels)};
}

}  // namespace tarn
