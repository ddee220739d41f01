// The files of a model directory, read and checked, before anything is packed:
// what they say needs no runtime that can run the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "core/safetensors.h"

namespace tarn {

constexpr uint64_t kMaxConfigBytes = 1 << 20;  // of config.json

/// DIR/config.json, finished; FormatError or IoError in one line. O(file).
Result<ModelConfig> ReadModelConfig(const std::string& dir);

/// The error again, with the file's folder in front.
Error InFolder(const std::string& dir, const Error& error);

struct ModelFiles {
  SafetensorsFile weights;
  std::vector<std::string>
      labels;  // [n_classes] of classify and ctc, else empty
};

/// DIR/model.safetensors, its tensors those of `config` by name and shape, and
/// the DIR/labels.json of one that has classes. Of the weights only the header
/// is read.
Result<ModelFiles> OpenModelFiles(const std::string& dir,
                                  const ModelConfig& config,
                                  bool use_mmap = true);

}  // namespace tarn
