#include "torch_nn/layers/feed_forward.h"

#include "core/error.h"
#include "core/text.h"

namespace tarn::nn {
namespace {

torch::nn::Linear AddLinear(torch::nn::Module& owner, const char* name,
                            int64_t in, int64_t out, bool bias) {
  return owner.register_module(
      name, torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(bias)));
}

class Mlp : public FeedForward {
 public:
  Mlp(torch::nn::Module& owner, const ModelConfig& config)
      : activation_(config.activation),
        linear1_(
            AddLinear(owner, "linear1", config.d_model, config.d_ff, true)),
        linear2_(
            AddLinear(owner, "linear2", config.d_ff, config.d_model, true)) {}

  torch::Tensor operator()(const torch::Tensor& x,
                           const ops::Dropout& dropout) const override {
    return ops::FeedForward(x, linear1_->weight, linear1_->bias,
                            linear2_->weight, activation_, dropout);
  }
  torch::Tensor OutputBias() const override { return linear2_->bias; }
  bool Describe(ops::LayerRestArguments& arguments) const override {
    arguments.weight1 = linear1_->weight;
    arguments.bias1 = linear1_->bias;
    arguments.weight2 = linear2_->weight;
    arguments.bias2 = linear2_->bias;
    arguments.activation = activation_;
    return true;
  }

 private:
  Activation activation_;
  torch::nn::Linear linear1_, linear2_;  // D -> F -> D
};

class Swiglu : public FeedForward {
 public:
  Swiglu(torch::nn::Module& owner, const ModelConfig& config)
      : linear1_(
            AddLinear(owner, "linear1", config.d_model, config.d_ff, false)),
        linear2_(
            AddLinear(owner, "linear2", config.d_ff, config.d_model, false)),
        linear3_(
            AddLinear(owner, "linear3", config.d_model, config.d_ff, false)) {}

  torch::Tensor operator()(const torch::Tensor& x,
                           const ops::Dropout& dropout) const override {
    return ops::SwigluFeedForward(x, linear1_->weight, linear2_->weight,
                                  linear3_->weight, dropout);
  }

 private:
  torch::nn::Linear linear1_, linear2_, linear3_;  // gate, down, up
};

template <typename Kind>
std::unique_ptr<FeedForward> MakeFeedForwardOf(torch::nn::Module& owner,
                                               const ModelConfig& config) {
  return std::make_unique<Kind>(owner, config);
}

struct FeedForwardRow {
  FeedForwardKind kind;
  std::unique_ptr<FeedForward> (*make)(torch::nn::Module&, const ModelConfig&);
};
constexpr FeedForwardRow kFeedForwards[] = {
    {FeedForwardKind::kMlp, MakeFeedForwardOf<Mlp>},
    {FeedForwardKind::kSwiglu, MakeFeedForwardOf<Swiglu>}};

}  // namespace

std::unique_ptr<FeedForward> MakeFeedForward(torch::nn::Module& owner,
                                             const ModelConfig& config) {
  for (const FeedForwardRow& row : kFeedForwards) {
    if (row.kind == config.feed_forward) return row.make(owner, config);
  }
  throw ArgumentError("feed_forward", "a kind with a module",
                      Name(config.feed_forward));
}

}  // namespace tarn::nn
