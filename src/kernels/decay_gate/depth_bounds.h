// The lower bounds of HGRN2's decay factors, which rise from layer to layer
// (Qin et al. 2024, arXiv 2404.07904, section 3.1): with p = softmax of the
// logits over the L layers, each channel for itself,
//
//   l_i = p_1 + ... + p_i,   l_0 = 0
//
// so that 0 <= l_i < 1, and l_i = i / L where all logits are equal.
#pragma once

#include <cstdint>

namespace tarn {

/// logits, bounds: [layers, count], dense; they may be the same. O(layers
/// count), in double with one rounding. Thread-safe.
void DepthBounds(const float* logits, int64_t layers, int64_t count,
                 float* bounds);

}  // namespace tarn
