#include "ema.h"
#include "torch_nn/mixers/registry.h"
#include "torch_nn/torch.h"

namespace tarn::plugin {
namespace {

class EmaModule final : public nn::Mixer {
 public:
  EmaModule(const ModelConfig& layer, nn::MixerPlace place)
      : Mixer(layer, place), least_(Least(layer)) {
    const auto linear = [&] {
      return torch::nn::Linear(
          torch::nn::LinearOptions(layer.d_model, layer.d_model).bias(false));
    };
    in_ = register_module("in_projection", linear());
    decay_ = register_parameter("decay", torch::randn({layer.d_model}));
    out_ = register_module("out_projection", linear());
  }

 protected:
  torch::Tensor Mix(const torch::Tensor& x, const nn::MixerContext&,
                    const torch::Tensor& key_mask) override {
    const torch::Tensor kept =
        key_mask.defined() ? key_mask
                           : torch::ones({x.size(0), x.size(1)}, torch::kBool);
    return out_(Averages(x, kept, {}));
  }

  torch::Tensor Continue(const torch::Tensor& x, const nn::MixerContext&,
                         const NewTokens& taken,
                         nn::MixerState& state) override {
    const torch::Tensor kept =
        torch::arange(x.size(1)).unsqueeze(0) < taken.added.unsqueeze(1);
    const torch::Tensor all = Averages(x, kept, state["average"]);
    // The row after the last token that counts; what was there, of none.
    const torch::Tensor with_first =
        torch::cat({state["average"].unsqueeze(1), all}, 1);
    state["average"] =
        with_first
            .gather(1, taken.added.view({-1, 1, 1}).expand({-1, 1, x.size(2)}))
            .squeeze(1);
    return out_(all);
  }

 private:
  // h_t of every row, as a sum over the rows up to it: O(T^2 D), by definition.
  torch::Tensor Averages(const torch::Tensor& x, const torch::Tensor& kept,
                         const torch::Tensor& first) {
    const torch::Tensor a = least_ + (1 - least_) * decay_.sigmoid();
    const torch::Tensor count = kept.to(x.scalar_type()).cumsum(1);  // [B, T]
    const torch::Tensor u =
        in_(x.masked_fill(~kept.unsqueeze(-1), 0.0)) * (1 - a);
    const torch::Tensor age =
        (count.unsqueeze(2) - count.unsqueeze(1)).unsqueeze(-1);
    const int64_t t = x.size(1);
    const torch::Tensor reads =
        torch::ones({t, t}, torch::kBool).tril().view({1, t, t, 1});
    // [B, T, T, D] of a^(age), 0 above the diagonal.
    const torch::Tensor weights =
        (age.clamp_min(0) * a.log()).exp().masked_fill(~reads, 0.0);
    torch::Tensor h = (weights * u.unsqueeze(1)).sum(2);
    if (first.defined()) {
      h = h + first.unsqueeze(1) * (count.unsqueeze(-1) * a.log()).exp();
    }
    return h;
  }

  torch::nn::Linear in_{nullptr}, out_{nullptr};
  torch::Tensor decay_;
  double least_;
};

std::shared_ptr<nn::Mixer> Make(const ModelConfig& layer,
                                nn::MixerPlace place) {
  return std::make_shared<EmaModule>(layer, place);
}

}  // namespace

void RegisterEmaModule() {
  static const bool done = [] {
    RegisterEma();
    nn::RegisterTorchMixer("ema", Make);
    return true;
  }();
  (void)done;
}

}  // namespace tarn::plugin
