// The feed-forward parts of every build as modules.
#include <cmath>

#include "config/feed_forward_form.h"
#include "core/error.h"
#include "core/text.h"
#include "torch_nn/layers/feed_forward.h"
#include "torch_nn/layers/feed_forward_moe.h"
#include "torch_nn/state/lengths.h"
#include "torch_nn/state/token_shift.h"
#include "torch_ops/rows/row_ops.h"

namespace tarn::nn {
namespace {

torch::nn::Linear AddLinear(torch::nn::Module& owner, const char* name,
                            int64_t in, int64_t out, bool bias) {
  return owner.register_module(
      name, torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(bias)));
}

// x times the factors of dropout.
torch::Tensor Dropped(const torch::Tensor& x, const ops::Dropout& dropout) {
  if (dropout.probability <= 0) return x;
  ops::ResidualNormArguments dropped;
  dropped.x = x;
  dropped.dropout = dropout;
  return ops::ResidualNorm(dropped).s;
}

class Mlp : public FeedForward {
 public:
  Mlp(torch::nn::Module& owner, const ModelConfig& config, const Depth&)
      : activation_(config.activation),
        linear1_(
            AddLinear(owner, "linear1", config.d_model, config.d_ff, true)),
        linear2_(
            AddLinear(owner, "linear2", config.d_ff, config.d_model, true)) {}

  torch::Tensor operator()(const torch::Tensor& x, const ops::Dropout& dropout,
                           const RowPlaces&) const override {
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
  Swiglu(torch::nn::Module& owner, const ModelConfig& config, const Depth&)
      : linear1_(
            AddLinear(owner, "linear1", config.d_model, config.d_ff, false)),
        linear2_(
            AddLinear(owner, "linear2", config.d_ff, config.d_model, false)),
        linear3_(
            AddLinear(owner, "linear3", config.d_model, config.d_ff, false)) {}

  torch::Tensor operator()(const torch::Tensor& x, const ops::Dropout& dropout,
                           const RowPlaces&) const override {
    return ops::SwigluFeedForward(x, linear1_->weight, linear2_->weight,
                                  linear3_->weight, dropout);
  }

 private:
  torch::nn::Linear linear1_, linear2_, linear3_;  // gate, down, up
};

class ChannelMix : public FeedForward {
 public:
  ChannelMix(torch::nn::Module& owner, const ModelConfig& config,
             const Depth& depth)
      : token_shift_(owner.register_parameter(
            "token_shift", FirstShift(config.d_model, depth))),
        linear1_(
            AddLinear(owner, "linear1", config.d_model, config.d_ff, false)),
        linear2_(
            AddLinear(owner, "linear2", config.d_ff, config.d_model, false)) {}

  torch::Tensor operator()(const torch::Tensor& x, const ops::Dropout& dropout,
                           const RowPlaces& places) const override {
    const torch::Tensor rows = Kept(x, places.key_mask);
    return ops::ChannelMix({rows, Before(rows, places), token_shift_,
                            linear1_->weight, linear2_->weight, dropout});
  }

 private:
  // The first channels look back, later layers less than earlier ones.
  static torch::Tensor FirstShift(int64_t d_model, const Depth& depth) {
    const double left = 1.0 - static_cast<double>(depth.layer) /
                                  static_cast<double>(depth.layers);
    const torch::Tensor channel = torch::arange(d_model).to(torch::kFloat32) /
                                  static_cast<double>(d_model);
    return 1 - channel.pow(std::pow(left, 4));
  }

  // The row in front of the rows, [B, D], absent: zeros; a state takes the last
  // of them.
  static ops::OptionalTensor Before(const torch::Tensor& rows,
                                    const RowPlaces& places) {
    if (places.cut != nullptr) return RowBeforePiece(rows, *places.cut);
    if (places.state == nullptr) return {};
    torch::Tensor& held = (*places.state)[kChannelShift];
    const torch::Tensor before = held;
    held = LastRow(rows, before, places.added);
    return before;
  }

  torch::Tensor token_shift_;            // [D]
  torch::nn::Linear linear1_, linear2_;  // D -> F -> D
};

// W_2 drop(act(W_1 x)) or W_2 drop(act(W_1 x) * W_3 x), without biases, of
// torch's own operators.
class ActivatedPart : public FeedForward {
 public:
  ActivatedPart(torch::nn::Module& owner, const ModelConfig& config, bool gated)
      : linear1_(
            AddLinear(owner, "linear1", config.d_model, config.d_ff, false)),
        linear2_(
            AddLinear(owner, "linear2", config.d_ff, config.d_model, false)) {
    if (gated) {
      linear3_ =
          AddLinear(owner, "linear3", config.d_model, config.d_ff, false);
    }
  }

  torch::Tensor operator()(const torch::Tensor& x, const ops::Dropout& dropout,
                           const RowPlaces&) const override {
    torch::Tensor hidden = Activated(ops::Affine(x, linear1_->weight));
    if (!linear3_.is_empty()) {
      hidden = hidden * ops::Affine(x, linear3_->weight);
    }
    return ops::Affine(Dropped(hidden, dropout), linear2_->weight);
  }

 private:
  virtual torch::Tensor Activated(const torch::Tensor& x) const = 0;

  torch::nn::Linear linear1_, linear2_, linear3_{nullptr};
};

class Geglu final : public ActivatedPart {
 public:
  Geglu(torch::nn::Module& owner, const ModelConfig& config, const Depth&)
      : ActivatedPart(owner, config, /*gated=*/true) {}

 private:
  torch::Tensor Activated(const torch::Tensor& x) const override {
    return torch::gelu(x);
  }
};

class Relu2 final : public ActivatedPart {
 public:
  Relu2(torch::nn::Module& owner, const ModelConfig& config, const Depth&)
      : ActivatedPart(owner, config, /*gated=*/false) {}

 private:
  torch::Tensor Activated(const torch::Tensor& x) const override {
    return torch::relu(x).square();
  }
};

template <typename Part>
std::unique_ptr<FeedForward> MakePart(torch::nn::Module& owner,
                                      const ModelConfig& layer,
                                      const MixerPlace& place) {
  return std::make_unique<Part>(owner, layer, DepthOf(layer, place));
}

std::unique_ptr<FeedForward> MakeNoPart(torch::nn::Module&, const ModelConfig&,
                                        const MixerPlace&) {
  return nullptr;
}

}  // namespace

std::vector<FeedForwardRow> BuiltinFeedForwardRows() {
  return {{"mlp", MakePart<Mlp>},
          {"swiglu", MakePart<Swiglu>},
          {"channel-mix", MakePart<ChannelMix>},
          {"none", MakeNoPart},
          {"geglu", MakePart<Geglu>},
          {"relu2", MakePart<Relu2>},
          {"moe", MakeMoe}};
}

}  // namespace tarn::nn
