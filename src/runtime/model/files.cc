#include "runtime/model/files.h"

#include <utility>

#include "core/file.h"
#include "core/text.h"
#include "importers/directory.h"
#include "runtime/model/labels.h"
#include "runtime/weights/weights.h"

namespace tarn {
namespace {

constexpr const char* kConfigFile = "config.json";

}  // namespace

Result<Tokenizer> OpenTokenizer(const std::string& dir,
                                const ModelConfig& config) {
  const Result<std::string> text =
      ReadFile(dir + "/" + kConfigFile, kMaxConfigBytes);
  if (!text.ok()) return text.error();
  if (!IsPublishedConfig(text.value()) ||
      config.tokenizer == TokenizerKind::kIds) {
    return Tokenizer::Open(dir, config);
  }
  Result<Tokenizer> tokenizer = Tokenizer::OpenAlone(dir);
  if (!tokenizer.ok()) return tokenizer;
  if (auto error = tokenizer.value().CheckFits(config)) return *error;
  return tokenizer;
}

Result<ModelFiles> OpenModelFiles(const std::string& dir,
                                  const ModelConfig& config, bool use_mmap) {
  const auto weights = OpenNamedWeights(dir, config, use_mmap);
  if (!weights.ok()) return weights.error();
  if (auto error = CheckWeights(*weights.value(), config)) return *error;
  std::vector<std::string> labels;
  if (HasLabels(config.task)) {
    Result<std::vector<std::string>> read = ReadLabels(dir, config);
    if (!read.ok()) return read.error();
    labels = std::move(read).Take();
  }
  return ModelFiles{weights.value(), std::move(labels)};
}

}  // namespace tarn
