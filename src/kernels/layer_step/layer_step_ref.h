// A token through transformer layers with linear attention, by the equations,
// row by row in double; elu(x) + 1 is the feature map.
#pragma once

#include <cstddef>
#include <vector>

namespace tarn {

using Doubles = std::vector<double>;

struct LayerStepMapRef {
  Doubles weight, bias;  // [outputs, inputs]; no bias: zeros
};

struct LayerStepNormRef {
  Doubles gamma, beta;  // no gamma: no norm; no beta: zeros
};

struct LayerStepAttentionRef {
  LayerStepMapRef query, key, value, out;
  LayerStepNormRef norm;
  Doubles S, z;  // of one row: [heads, d_key, d_value], [heads, d_key]
};

struct LayerStepLayerRef {
  std::vector<LayerStepAttentionRef> attentions;
  LayerStepMapRef linear1, linear2, linear3;  // with linear3: SwiGLU
  LayerStepNormRef norm;
};

struct LayerStepModelRef {
  size_t heads = 1;
  bool pre_norm = false, rms = false, gelu = false;
  double eps = 1e-5;
  std::vector<LayerStepLayerRef> layers;
  LayerStepNormRef last_norm;
  LayerStepMapRef head;  // no weight: none
};

/// The result for one row x [D], with a head its logits; advances the states in
/// `model`.
Doubles LayerStepRef(LayerStepModelRef& model, Doubles x);

}  // namespace tarn
