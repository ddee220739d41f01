#include "torch_nn/mixers/linear/random_features.h"

#include "mixers/linear/form.h"
#include "torch_ops/feature_maps/feature_maps.h"

namespace tarn::nn {
namespace {

// The module at `path`; every module on the path is created.
torch::nn::Module& Descend(torch::nn::Module& owner, const std::string& path) {
  const size_t dot = path.find('.');
  const std::string name = path.substr(0, dot);
  const auto child =
      owner.register_module(name, std::make_shared<torch::nn::Module>(name));
  return dot == path.npos ? *child : Descend(*child, path.substr(dot + 1));
}

}  // namespace

RandomFeatures::RandomFeatures(torch::nn::Module& owner,
                               const std::string& path,
                               const ModelConfig& layer, int64_t index)
    : index_(index) {
  const LinearKeys keys(layer);
  map_ = keys.feature_map;
  redraw_ = keys.redraw;
  seed_ = keys.feature_seed;
  if (!UsesOmega(map_)) return;
  omega_ =
      Descend(owner, path + ".feature_map")
          .register_buffer(
              "omega",
              torch::empty({layer.d_key, OmegaColumns(map_, keys.n_dims)}));
  Draw(0);
}

void RandomFeatures::Redraw(int64_t step) {
  if (!omega_.defined() || redraw_ == 0 || step % redraw_ != 0) return;
  Draw(step);
}

void RandomFeatures::Draw(int64_t step) {
  torch::NoGradGuard no_grad;
  omega_.copy_(ops::DrawOmega(omega_.size(0), omega_.size(1),
                              Traits(map_).orthogonal,
                              static_cast<uint64_t>(seed_), index_, step));
}

}  // namespace tarn::nn
