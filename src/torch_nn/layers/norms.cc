#include "torch_nn/layers/norms.h"

#include "core/error.h"
#include "core/text.h"

namespace tarn::nn {
namespace {

// A norm begins with the factor 1.
torch::Tensor FirstWeight(const ModelConfig& config) {
  return torch::full({config.d_model}, 1.0 - config.norm_offset);
}

torch::Tensor Offset(const torch::Tensor& weight, double offset) {
  return offset == 0.0 ? weight : weight + offset;
}

// (x - mean) / sqrt(variance + eps) * weight + bias (Ba et al. 2016).
class LayerNorm : public NormLayer {
 public:
  explicit LayerNorm(const ModelConfig& config)
      : eps_(config.norm_eps), offset_(config.norm_offset) {
    weight_ = register_parameter("weight", FirstWeight(config));
    bias_ = register_parameter("bias", torch::zeros({config.d_model}));
  }
  void Describe(ops::ResidualNormArguments& arguments) const override {
    arguments.gamma = Offset(weight_, offset_);
    arguments.beta = bias_;
    arguments.eps = eps_;
    arguments.kind = NormKind::kLayer;
  }

 private:
  double eps_, offset_;
  torch::Tensor weight_, bias_;  // [d_model]
};

// x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019).
class RmsNorm : public NormLayer {
 public:
  explicit RmsNorm(const ModelConfig& config)
      : eps_(config.norm_eps), offset_(config.norm_offset) {
    weight_ = register_parameter("weight", FirstWeight(config));
  }
  void Describe(ops::ResidualNormArguments& arguments) const override {
    arguments.gamma = Offset(weight_, offset_);
    arguments.eps = eps_;
    arguments.kind = NormKind::kRms;
  }

 private:
  double eps_, offset_;
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
