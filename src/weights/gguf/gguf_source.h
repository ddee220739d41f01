// The tensors of a GGUF file as a source of weights.
#pragma once

#include <memory>

#include "weights/gguf/gguf_file.h"
#include "weights/weight_source.h"

namespace tarn {

/// Tensors under the file's names, in the shapes that PyTorch would give them.
std::shared_ptr<const WeightSource> GgufWeights(
    std::shared_ptr<const GgufFile> file);

}  // namespace tarn
