#include "torch_nn/mixers/common/cached.h"
#include "torch_nn/mixers/softmax/softmax.h"

namespace tarn::nn {
namespace {

class ExactTopk : public CachedMixer {
 public:
  ExactTopk(const ModelConfig& layer, MixerPlace place)
      : CachedMixer(layer, place), topk_(KeyOf<int64_t>(layer, "topk")) {}

 protected:
  torch::Tensor AttendHeads(const Heads& heads, const RotaryTable& rotary,
                            const torch::Tensor& key_mask) override {
    return Call(Turned(heads, rotary), Masks(key_mask, place_.causal, 0));
  }

  torch::Tensor AttendCache(const Heads& heads, const Heads& all,
                            const torch::Tensor& added,
                            const MixerState& state) override {
    return Call(all, Masks(CacheMask(heads, added, state), /*causal=*/true,
                           state["keys"].size(1)));
  }

 private:
  torch::Tensor Call(const Heads& heads,
                     const ops::AttentionMasks& masks) const {
    ops::SoftmaxOptions options;
    options.dropout = DrawAttentionDropout();
    return ops::ExactTopkAttention(heads.queries, heads.keys, heads.values,
                                   topk_, masks, options)
        .out;
  }

  const int64_t topk_;
};

}  // namespace

std::shared_ptr<Mixer> MakeExactTopk(const ModelConfig& layer,
                                     MixerPlace place) {
  return std::make_shared<ExactTopk>(layer, place);
}

}  // namespace tarn::nn
