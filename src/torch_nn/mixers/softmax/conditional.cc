#include "torch_nn/mixers/common/projected.h"
#include "torch_nn/mixers/linear/heads.h"
#include "torch_nn/mixers/linear/random_features.h"
#include "torch_nn/mixers/softmax/softmax.h"

namespace tarn::nn {
namespace {

class Conditional : public ProjectedMixer {
 public:
  Conditional(const ModelConfig& layer, MixerPlace place)
      : ProjectedMixer(layer, place),
        keys_(layer),
        length_limit_(KeyOf<int64_t>(layer, "length_limit")),
        features_(*this, "inner_attention.other_attention", layer,
                  place.draw()) {}

  void Redraw(int64_t step) override { features_.Redraw(step); }

 protected:
  torch::Tensor AttendHeads(const Heads& heads, const RotaryTable& rotary,
                            const torch::Tensor& key_mask) override {
    // The tensor's size decides, padding included: a batch switches as a whole.
    if (heads.queries.size(1) > length_limit_) {
      LinearHeads in;
      in.queries = heads.queries;
      in.keys = heads.keys;
      in.values = heads.values;
      in.key_mask = key_mask;
      in.omega = features_.omega();
      in.causal = place_.causal;
      return AttendTurned(keys_, in, rotary, nullptr);
    }
    const Heads turned = Turned(heads, rotary);
    ops::SoftmaxOptions options;
    options.dropout = DrawAttentionDropout();
    return ops::FullAttention(turned.queries, turned.keys, turned.values,
                              Masks(key_mask, place_.causal, 0), options)
        .out;
  }

  const char* WhyNotRecurrent() const override {
    return "which changes its kind with the length of the whole sequence";
  }

 private:
  const LinearKeys keys_;
  const int64_t length_limit_;
  RandomFeatures features_;
};

}  // namespace

std::shared_ptr<Mixer> MakeConditional(const ModelConfig& layer,
                                       MixerPlace place) {
  return std::make_shared<Conditional>(layer, place);
}

}  // namespace tarn::nn
