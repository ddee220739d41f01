// What tells one model from another in the files of their states.
#pragma once

#include <cstdint>

#include "config/model_config.h"
#include "kernels/matmul/weight_format.h"
#include "weights/weight_source.h"

namespace tarn {

/// Identifies a model in its state files: a hash of the configuration, of the
/// format weights are held in, and of every tensor's name, encoding, shape and
/// 64-byte blocks at 17 places, first and last among them; which file holds a
/// tensor does not count. The blocks are a sample because opening a large model
/// must not cost another pass over it: a training update changes nearly every
/// weight, so the sample tells checkpoints apart, but it may miss a change made
/// by hand to single weights. O(tensors).
uint64_t ModelFingerprint(const WeightSource& source, const ModelConfig& config,
                          const WeightFormat& held);

}  // namespace tarn
