#include "runtime/model/files.h"

#include <utility>

#include "runtime/model/labels.h"
#include "runtime/weights/weights.h"

namespace tarn {
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
