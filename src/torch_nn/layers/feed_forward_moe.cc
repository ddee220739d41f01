#include "torch_nn/layers/feed_forward_moe.h"

#include <cmath>

#include "feed_forward/moe_form.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/moe/moe.h"

namespace tarn::nn {
namespace {

RouterScores ScoresOf(RouterKind router) {
  return router == RouterKind::kSoftmax ? RouterScores::kSoftmax
                                        : RouterScores::kSigmoid;
}

ExpertActivation ActivationOf(ExpertPart part) {
  switch (part) {
    case ExpertPart::kSwiglu:
      return ExpertActivation::kSilu;
    case ExpertPart::kGeglu:
      return ExpertActivation::kGelu;
    case ExpertPart::kRelu2:
      break;
  }
  return ExpertActivation::kRelu2;
}

// The stacked matrices of the experts, each initialised as in
// torch::nn::Linear, and the load-balancing loss of their last call.
class ExpertsModule final : public torch::nn::Module, public WithLoss {
 public:
  ExpertsModule(const MoeForm& form, int64_t d_model) : form_(form) {
    const auto maps = [&](const char* name, int64_t out, int64_t in) {
      const double bound = 1 / std::sqrt(static_cast<double>(in));
      return register_parameter(
          name, torch::empty({form.experts, out, in}).uniform_(-bound, bound));
    };
    linear1_ = maps("linear1", form.width, d_model);
    linear2_ = maps("linear2", d_model, form.width);
    if (form.gated()) linear3_ = maps("linear3", form.width, d_model);
  }

  torch::Tensor Run(const torch::Tensor& x, const torch::Tensor& logits,
                    const torch::Tensor& bias, const torch::Tensor& kept) {
    const auto [weights, chosen] = ops::Route(
        logits,
        {ScoresOf(form_.router), form_.per_token, form_.normalize, form_.scale},
        ops::NoneOr(bias));
    if (is_training() && form_.balance > 0) {
      loss_ = form_.balance * Balance(logits, chosen, kept);
    }
    ops::ExpertsArguments in;
    in.x = x;
    in.chosen = chosen;
    in.weights = weights.to(x.scalar_type());
    in.weight1 = linear1_;
    in.weight2 = linear2_;
    if (form_.gated()) in.weight3 = linear3_;
    in.activation = ActivationOf(form_.part);
    return ops::Experts(in);
  }

  torch::Tensor TakeLoss() override {
    const torch::Tensor loss = loss_;
    loss_ = torch::Tensor();
    return loss;
  }

 private:
  // Of the tokens that count.
  torch::Tensor Balance(const torch::Tensor& logits,
                        const torch::Tensor& chosen,
                        const torch::Tensor& kept) const {
    const RouterScores scores = ScoresOf(form_.router);
    if (!kept.defined()) return ops::BalanceLoss(logits, chosen, scores);
    return ops::BalanceLoss(logits.index({kept}), chosen.index({kept}), scores);
  }

  const MoeForm form_;
  torch::Tensor linear1_, linear2_, linear3_;
  torch::Tensor loss_;
};

// Three maps, or two, without biases.
class SharedExpert final : public torch::nn::Module {
 public:
  SharedExpert(const MoeForm& form, int64_t d_model) : form_(form) {
    const auto map = [&](const char* name, int64_t in, int64_t out) {
      return register_module(
          name,
          torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false)));
    };
    linear1_ = map("linear1", d_model, form.shared_width);
    linear2_ = map("linear2", form.shared_width, d_model);
    if (form.gated()) linear3_ = map("linear3", d_model, form.shared_width);
  }

  torch::Tensor Run(const torch::Tensor& x) {
    torch::Tensor hidden = ops::Affine(x, linear1_->weight);
    switch (form_.part) {
      case ExpertPart::kSwiglu:
        hidden = torch::silu(hidden);
        break;
      case ExpertPart::kGeglu:
        hidden = torch::gelu(hidden);
        break;
      case ExpertPart::kRelu2:
        hidden = torch::relu(hidden).square();
        break;
    }
    if (form_.gated()) hidden = hidden * ops::Affine(x, linear3_->weight);
    return ops::Affine(hidden, linear2_->weight);
  }

 private:
  const MoeForm form_;
  torch::nn::Linear linear1_{nullptr}, linear2_{nullptr}, linear3_{nullptr};
};

class Moe final : public FeedForward {
 public:
  Moe(torch::nn::Module& owner, const ModelConfig& layer)
      : form_(MoeFormOf(layer)),
        router_(Map(owner, "router", layer.d_model, form_.experts)),
        experts_(owner.register_module(
            "experts", std::make_shared<ExpertsModule>(form_, layer.d_model))) {
    if (form_.biased()) {
      router_bias_ =
          owner.register_buffer("router_bias", torch::zeros({form_.experts}));
    }
    if (form_.shared_width == 0) return;
    shared_ = owner.register_module(
        "shared", std::make_shared<SharedExpert>(form_, layer.d_model));
    if (form_.shared_gate) {
      shared_gate_ = Map(owner, "shared_gate", layer.d_model, 1);
    }
  }

  // Dropout acts on the sum alone, where the layer adds it.
  torch::Tensor operator()(const torch::Tensor& x, const ops::Dropout&,
                           const RowPlaces& places) const override {
    const torch::Tensor logits = ops::Affine(x, router_->weight);
    torch::Tensor y = experts_->Run(x, logits, router_bias_, places.key_mask);
    if (shared_ == nullptr) return y;
    torch::Tensor shared = shared_->Run(x);
    if (!shared_gate_.is_empty()) {
      shared = shared * torch::sigmoid(ops::Affine(x, shared_gate_->weight));
    }
    return y + shared;
  }

 private:
  static torch::nn::Linear Map(torch::nn::Module& owner, const char* name,
                               int64_t in, int64_t out) {
    return owner.register_module(
        name, torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false)));
  }

  const MoeForm form_;
  torch::nn::Linear router_;
  torch::Tensor router_bias_;  // [E]; undefined: none
  std::shared_ptr<ExpertsModule> experts_;
  std::shared_ptr<SharedExpert> shared_;  // null: none
  torch::nn::Linear shared_gate_{nullptr};
};

}  // namespace

torch::Tensor TakeLosses(torch::nn::Module& model) {
  torch::Tensor sum;
  // Without the model itself, which need not be held by a shared pointer.
  for (const std::shared_ptr<torch::nn::Module>& module :
       model.modules(/*include_self=*/false)) {
    auto* with_loss = dynamic_cast<WithLoss*>(module.get());
    if (with_loss == nullptr) continue;
    const torch::Tensor loss = with_loss->TakeLoss();
    if (loss.defined()) sum = sum.defined() ? sum + loss : loss;
  }
  return sum;
}

std::unique_ptr<FeedForward> MakeMoe(torch::nn::Module& owner,
                                     const ModelConfig& layer,
                                     const MixerPlace&) {
  return std::make_unique<Moe>(owner, layer);
}

}  // namespace tarn::nn
