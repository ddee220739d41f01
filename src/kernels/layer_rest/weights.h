// The three weights of a layer's rest in the order in which a pass meets them,
// and the checks that both passes share.
#pragma once

#include <algorithm>

#include "kernels/gemm/packed_operands.h"
#include "kernels/layer_rest/layer_rest.h"

namespace tarn {

/// Checks what both passes read; throws like LayerRestForward.
void LayerRestCheck(const LayerRestOptions& options,
                    const LayerRestShape& shape,
                    const LayerRestWeights& weights,
                    const LayerRestTensors& tensors);

struct LayerRestProducts {
  GemmWeight weights[3];

  /// Products 0, 1, 2 with Wo^T, W1^T, W2^T.
  static LayerRestProducts Forward(const LayerRestShape& s,
                                   const LayerRestWeights& w) {
    return {{{{w.out_weight, s.mixed, true}, s.mixed, s.width},
             {{w.weight1, s.width, true}, s.width, s.hidden},
             {{w.weight2, s.hidden, true}, s.hidden, s.width}}};
  }
  /// Products 0, 1, 2 with W2, W1, Wo.
  static LayerRestProducts Backward(const LayerRestShape& s,
                                    const LayerRestWeights& w) {
    return {{{{w.weight2, s.hidden, false}, s.width, s.hidden},
             {{w.weight1, s.width, false}, s.hidden, s.width},
             {{w.out_weight, s.mixed, false}, s.width, s.mixed}}};
  }
  /// Floats of the packed weights, enough for either pass.
  static int64_t Floats(const LayerRestShape& s) {
    return std::max(PackedOperands::Floats(Forward(s, {}).weights, 3),
                    PackedOperands::Floats(Backward(s, {}).weights, 3));
  }
};

/// Whole cache lines.
inline int64_t WholeLines(int64_t floats) { return (floats + 15) / 16 * 16; }

}  // namespace tarn
