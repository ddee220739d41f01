// The files of a model directory, read and checked before anything is packed.
// Reading them needs no runtime that can run the model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "importers/directory.h"
#include "importers/model_files.h"
#include "text/tokenizer.h"
#include "weights/weight_source.h"

namespace tarn {

/// The tokenizer of a model: for tarn's own directories Tokenizer::Open; a
/// published one's is whatever its files hold, as `config` does not name its
/// type, and must only fit the model's vocabulary.
Result<Tokenizer> OpenTokenizer(const ModelPath& model,
                                const ModelConfig& config);

/// A tokenizer by itself: Tokenizer::OpenFile, which also reads that of a GGUF
/// file.
Result<Tokenizer> OpenTokenizerFile(const std::string& path);

struct ModelFiles {
  std::shared_ptr<const WeightSource> weights;
  std::vector<std::string>
      labels;  // [n_classes] of classify and ctc, else empty
};

/// Opens the weights of a model (OpenNamedWeights), whose tensors must be those
/// of `config` by name and shape, and labels.json for a model with classes.
/// Only headers of the weights are read.
Result<ModelFiles> OpenModelFiles(const ModelPath& model,
                                  const ModelConfig& config,
                                  bool use_mmap = true);

}  // namespace tarn
