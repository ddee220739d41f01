// The files of a model directory, read and checked before anything is packed.
// Reading them needs no runtime that can run the model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "text/tokenizer.h"
#include "weights/weight_source.h"

namespace tarn {

constexpr uint64_t kMaxConfigBytes = 1 << 20;  // of config.json

/// DIR/config.json, finished: tarn's own, or that of a published model
/// (importers/directory.h), whose tokens are ids where there is no
/// tokenizer.json. FormatError or IoError in one line. O(file).
Result<ModelConfig> ReadModelConfig(const std::string& dir);

/// The tokenizer of DIR: for tarn's own directories Tokenizer::Open; a
/// published one's is whatever its files hold, as `config` does not name its
/// type, and must only fit the model's vocabulary.
Result<Tokenizer> OpenTokenizer(const std::string& dir,
                                const ModelConfig& config);

/// The weights of DIR (OpenWeightSource) under the names of `config`, which a
/// published model's get from its importer.
Result<std::shared_ptr<const WeightSource>> OpenNamedWeights(
    const std::string& dir, const ModelConfig& config, bool use_mmap = true);

/// The same error with the file's folder in front.
Error InFolder(const std::string& dir, const Error& error);

struct ModelFiles {
  std::shared_ptr<const WeightSource> weights;
  std::vector<std::string>
      labels;  // [n_classes] of classify and ctc, else empty
};

/// Opens the weights of DIR (OpenNamedWeights), whose tensors must be those of
/// `config` by name and shape, and DIR/labels.json for a model with classes.
/// Only headers of the weights are read.
Result<ModelFiles> OpenModelFiles(const std::string& dir,
                                  const ModelConfig& config,
                                  bool use_mmap = true);

}  // namespace tarn
