#include "torch_nn/layers/norms.h"

#include "core/error.h"
#include "core/text.h"

namespace tarn::nn {
namespace {

// (x - mean) / sqrt(variance + eps) * weight + bias (Ba et al. 2016).
class LayerNorm : public NormLayer {
 public:
  explicit LayerNorm(const ModelConfig& config) : eps_(config.norm_eps) {
    weight_ = register_parameter("weight", torch::ones({config.d_model}));
    bias_ = register_parameter("bias", torch::zeros({config.d_model}));
  }
  void Describe(ops::ResidualNormArguments& arguments) const override {
    arguments.gamma = weight_;
    arguments.beta = bias_;
    arguments.eps = eps_;
    arguments.kind = NormKind::kLayer;
  }

 private:
  double eps_;
  torch::Tensor weight_, bias_;  // [d_model]
};

// x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019).
class RmsNorm : public NormLayer {
 public:
  explicit RmsNorm(const ModelConfig& config) : eps_(config.norm_eps) {
    weight_ = register_parameter("weight", torch::ones({config.d_model}));
  }
  void Describe(ops::ResidualNormArguments& arguments) const override {
    arguments.gamma = weight_;
    arguments.eps = eps_;
    arguments.kind = NormKind::kRms;
  }

 private:
  double eps_;
  torch::Tensor weight_;  // [d_model]
};

template <typename Kind>
std::shared_ptr<NormLayer> MakeNormOf(const ModelConfig& config) {
  return std::make_shared<Kind>(config);
}

struct NormRow {
  NormKind kind;
  std::shared_ptr<NormLayer> (*make)(const ModelConfig&);
};
constexpr NormRow kNorms[] = {{NormKind::kLayer, MakeNormOf<LayerNorm>},
                              {NormKind::kRms, MakeNormOf<RmsNorm>}};

}  // namespace

torch::Tensor NormLayer::forward(const torch::Tensor& x) const {
  ops::ResidualNormArguments arguments;
  arguments.x = x;
  Describe(arguments);
  return ops::ResidualNorm(arguments).y;
}

std::shared_ptr<NormLayer> MakeNorm(const ModelConfig& config) {
  for (const NormRow& row : kNorms) {
    if (row.kind == config.norm_kind) return row.make(config);
  }
  throw ArgumentError("norm_kind", "a kind with a module",
                      Name(config.norm_kind));
}

}  // namespace tarn::nn
