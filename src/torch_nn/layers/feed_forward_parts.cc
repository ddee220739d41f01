// The feed-forward parts of every build as modules.
#include <cmath>

#include "config/feed_forward_form.h"
#include "core/error.h"
#include "core/text.h"
#include "torch_nn/layers/feed_forward.h"
#include "torch_nn/layers/feed_forward_moe.h"
#include "torch_nn/state/lengths.h"
#include "torch_nn/state/token_shift.h"
#include "torch_ops/common/tensors.h"
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

torch::Tensor GeluTanh(const torch::Tensor& x) {
  return torch::gelu(x, "tanh");
}

torch::Tensor SquaredRelu(const torch::Tensor& x) {
  return torch::relu(x).square();
}

// W_2 drop(act(W_1 x)) or W_2 drop(act(W_1 x) * W_3 x), of torch's own
// operators, with biases or without.
class MapsPart : public FeedForward {
 public:
  using Curve = torch::Tensor (*)(const torch::Tensor&);

  MapsPart(torch::nn::Module& owner, const ModelConfig& config, Curve curve,
           bool gated, bool biased)
      : linear1_(
            AddLinear(owner, "linear1", config.d_model, config.d_ff, biased)),
        linear2_(
            AddLinear(owner, "linear2", config.d_ff, config.d_model, biased)),
        curve_(curve) {
    if (gated) {
      linear3_ =
          AddLinear(owner, "linear3", config.d_model, config.d_ff, biased);
    }
  }

  torch::Tensor operator()(const torch::Tensor& x, const ops::Dropout& dropout,
                           const RowPlaces&) const override {
    torch::Tensor hidden = curve_(Mapped(linear1_, x));
    if (!linear3_.is_empty()) hidden = hidden * Mapped(linear3_, x);
    return ops::Affine(Dropped(hidden, dropout), linear2_->weight);
  }
  torch::Tensor OutputBias() const override { return linear2_->bias; }

 protected:
  torch::nn::Linear linear1_, linear2_, linear3_{nullptr};

 private:
  static torch::Tensor Mapped(const torch::nn::Linear& map,
                              const torch::Tensor& x) {
    return ops::Affine(x, map->weight, ops::NoneOr(map->bias));
  }

  const Curve curve_;
};

// The kernel computes it with biases, and relu or the exact gelu.
class Mlp final : public MapsPart {
 public:
  Mlp(torch::nn::Module& owner, const ModelConfig& config, const Depth&)
      : MapsPart(owner, config, CurveOf(config.activation), /*gated=*/false,
                 HasBiases(config, /*by_itself=*/true)),
        activation_(config.activation) {}

  torch::Tensor operator()(const torch::Tensor& x, const ops::Dropout& dropout,
                           const RowPlaces& places) const override {
    if (!InKernel()) return MapsPart::operator()(x, dropout, places);
    return ops::FeedForward(x, linear1_->weight, linear1_->bias,
                            linear2_->weight, activation_, dropout);
  }
  bool Describe(ops::LayerRestArguments& arguments) const override {
    if (!InKernel()) return false;
    arguments.weight1 = linear1_->weight;
    arguments.bias1 = linear1_->bias;
    arguments.weight2 = linear2_->weight;
    arguments.bias2 = linear2_->bias;
    arguments.activation = activation_;
    return true;
  }

 private:
  bool InKernel() const {
    return linear1_->bias.defined() && activation_ != Activation::kGeluTanh;
  }
  static Curve CurveOf(Activation activation) {
    if (activation == Activation::kRelu) {
      return [](const torch::Tensor& x) { return torch::relu(x); };
    }
    if (activation == Activation::kGeluTanh) return GeluTanh;
    return [](const torch::Tensor& x) { return torch::gelu(x); };
  }

  const Activation activation_;
};

// The kernel computes it without biases.
class Swiglu final : public MapsPart {
 public:
  Swiglu(torch::nn::Module& owner, const ModelConfig& config, const Depth&)
      : MapsPart(
            owner, config,
            [](const torch::Tensor& x) { return torch::silu(x); },
            /*gated=*/true, HasBiases(config, /*by_itself=*/false)) {}

  torch::Tensor operator()(const torch::Tensor& x, const ops::Dropout& dropout,
                           const RowPlaces& places) const override {
    if (linear1_->bias.defined()) {
      return MapsPart::operator()(x, dropout, places);
    }
    return ops::SwigluFeedForward(x, linear1_->weight, linear2_->weight,
                                  linear3_->weight, dropout);
  }
};

class Geglu final : public MapsPart {
 public:
  Geglu(torch::nn::Module& owner, const ModelConfig& config, const Depth&)
      : MapsPart(
            owner, config,
            [](const torch::Tensor& x) { return torch::gelu(x); },
            /*gated=*/true, HasBiases(config, /*by_itself=*/false)) {}
};

class GegluTanh final : public MapsPart {
 public:
  GegluTanh(torch::nn::Module& owner, const ModelConfig& config, const Depth&)
      : MapsPart(owner, config, GeluTanh, /*gated=*/true,
                 HasBiases(config, /*by_itself=*/false)) {}
};

class Relu2 final : public MapsPart {
 public:
  Relu2(torch::nn::Module& owner, const ModelConfig& config, const Depth&)
      : MapsPart(owner, config, SquaredRelu, /*gated=*/false,
                 HasBiases(config, /*by_itself=*/false)) {}
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
    return Mixed(rows, Before(rows, places), dropout);
  }

 protected:
  // before: the row in front of the rows, [B, D]; absent: zeros.
  torch::Tensor Mixed(const torch::Tensor& rows,
                      const ops::OptionalTensor& before,
                      const ops::Dropout& dropout) const {
    return ops::ChannelMix({rows, before, token_shift_, linear1_->weight,
                            linear2_->weight, dropout});
  }

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

 private:
  torch::Tensor token_shift_;            // [D]
  torch::nn::Linear linear1_, linear2_;  // D -> F -> D
};

class GatedChannelMix final : public ChannelMix {
 public:
  GatedChannelMix(torch::nn::Module& owner, const ModelConfig& config,
                  const Depth& depth)
      : ChannelMix(owner, config, depth),
        gate_shift_(owner.register_parameter(
            "gate_shift", FirstShift(config.d_model, depth))),
        gate_(AddLinear(owner, "gate", config.d_model, config.d_model, false)) {
  }

  torch::Tensor operator()(const torch::Tensor& x, const ops::Dropout& dropout,
                           const RowPlaces& places) const override {
    const torch::Tensor rows = Kept(x, places.key_mask);
    const ops::OptionalTensor before = Before(rows, places);
    const torch::Tensor gate = torch::sigmoid(
        ops::Affine(ops::TokenShift(rows, before, gate_shift_), gate_->weight));
    return gate * Mixed(rows, before, dropout);
  }

 private:
  torch::Tensor gate_shift_;  // [D]
  torch::nn::Linear gate_;    // D -> D
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
          {"moe", MakeMoe},
          {"geglu-tanh", MakePart<GegluTanh>},
          {"gated-channel-mix", MakePart<GatedChannelMix>}};
}

}  // namespace tarn::nn
