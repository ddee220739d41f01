// What tells one model from another in the files of their states.
#pragma once

#include <cstdint>
#include <vector>

#include "config/model_config.h"
#include "runtime/weights/packer.h"
#include "weights/weight_source.h"

namespace tarn {

/// Identifies a model's files in those of its states: a hash of the
/// configuration, of the format that its embedding is held in, and of every
/// tensor's name, encoding, shape and 64-byte blocks at 17 places, first and
/// last among them; which file holds a tensor does not count. The blocks are a
/// sample because opening a large model must not cost another pass over it: a
/// training update changes nearly every weight, so the sample tells checkpoints
/// apart, but it may miss a change made by hand to single weights. O(tensors).
uint64_t ModelFingerprint(const WeightSource& source, const ModelConfig& config,
                          const WeightFormat& held);

/// The same of a model whose tensors are held as given: matrices in formats
/// that are not equivalent to `held` change it.
uint64_t HeldFingerprint(uint64_t fingerprint, const WeightFormat& held,
                         const std::vector<HeldTensor>& tensors);

}  // namespace tarn
