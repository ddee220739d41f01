#include "runtime/model/files.h"

#include <utility>

#include "core/file.h"
#include "core/text.h"
#include "runtime/model/labels.h"
#include "runtime/weights/weights.h"

namespace tarn {
Error InFolder(const std::string& dir, const Error& error) {
  if (error.wanted().empty()) {
    return Error(error.code(), StrCat(dir, "/", error.what()));
  }
  return Error(error.code(), StrCat(dir, "/", error.where()), error.wanted(),
               error.given());
}

Result<ModelConfig> ReadModelConfig(const std::string& dir) {
  const Result<std::string> text =
      ReadFile(dir + "/config.json", kMaxConfigBytes);
  if (!text.ok()) return text.error();
  Result<ModelConfig> config = ConfigFromJson(text.value());
  if (!config.ok()) return InFolder(dir, config.error());
  return config;
}

Result<ModelFiles> OpenModelFiles(const std::string& dir,
                                  const ModelConfig& config, bool use_mmap) {
  const auto weights = OpenWeightSource(dir, use_mmap);
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
