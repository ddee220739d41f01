// The random directions of a feature map: drawn, not trained.
#pragma once

#include <string>

#include "config/model_config.h"
#include "core/feature_map.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// omega [d_key, columns] of a layer's feature map, a buffer
/// `{path}.feature_map.omega` of its owner; maps without directions have none.
class RandomFeatures {
 public:
  /// path: the modules between the owner and the map, separated by dots. Drawn
  /// for update 0, a function of the key feature_seed and `index` alone.
  RandomFeatures(torch::nn::Module& owner, const std::string& path,
                 const ModelConfig& layer, int64_t index);
  /// Redraws the directions at an update if the key redraw says so.
  void Redraw(int64_t step);
  /// Undefined for maps without directions.
  const torch::Tensor& omega() const { return omega_; }

 private:
  void Draw(int64_t step);

  FeatureMap map_;
  int64_t redraw_, seed_, index_;
  torch::Tensor omega_;
};

}  // namespace tarn::nn
