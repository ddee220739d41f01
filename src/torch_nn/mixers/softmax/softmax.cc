#include "torch_nn/mixers/softmax/softmax.h"

#include "torch_nn/mixers/common/cached.h"

namespace tarn::nn {
namespace {

// What full, local and exact-topk share; they differ in their operator.
class Softmax : public CachedMixer {
 public:
  using CachedMixer::CachedMixer;

 protected:
  // heads turned -> [B, T, H, V].
  virtual torch::Tensor Call(const Heads& heads,
                             const ops::AttentionMasks& masks) const = 0;

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

  ops::SoftmaxOptions Options() const {
    ops::SoftmaxOptions options;
    options.dropout = DrawAttentionDropout();
    return options;
  }
};

// A memory is its keys and values under a mask.
class Full : public Softmax {
 public:
  Full(const ModelConfig& layer, MixerPlace place) : Softmax(layer, place) {
    memory_form_ = std::make_shared<StateForm>(*state_form_);
    memory_form_->slots.push_back(
        {{.name = "key_mask", .shape = {}}, /*mask=*/true});
  }

 protected:
  torch::Tensor Call(const Heads& heads,
                     const ops::AttentionMasks& masks) const override {
    return ops::FullAttention(heads.queries, heads.keys, heads.values, masks,
                              Options())
        .out;
  }

  void FillHeads(const torch::Tensor& keys, const torch::Tensor& values,
                 const torch::Tensor& key_mask,
                 MixerState& state) const override {
    state["keys"] = keys;
    state["values"] = values;
    state["key_mask"] = key_mask;
  }

  torch::Tensor ReadHeads(const torch::Tensor& queries,
                          const MixerState& memory) override {
    return Call({queries, memory["keys"], memory["values"]},
                Masks(memory["key_mask"], /*causal=*/false, 0));
  }
};

class Local : public Softmax {
 public:
  Local(const ModelConfig& layer, MixerPlace place)
      : Softmax(layer, place),
        local_context_(KeyOf<int64_t>(layer, "local_context")) {}

 protected:
  torch::Tensor Call(const Heads& heads,
                     const ops::AttentionMasks& masks) const override {
    return ops::LocalAttention(heads.queries, heads.keys, heads.values,
                               local_context_, masks, Options());
  }

  // The window counts places in one sequence: the queries are placed after
  // those of the kept keys, whose results are dropped.
  torch::Tensor AttendCache(const Heads& heads, const Heads& all,
                            const torch::Tensor& added,
                            const MixerState& state) override {
    const int64_t before = state["keys"].size(1);
    const torch::Tensor gone = torch::zeros(
        {all.queries.size(0), before, config_.n_heads, config_.d_key},
        all.queries.options());
    const Heads placed = {torch::cat({gone, all.queries}, 1), all.keys,
                          all.values};
    const torch::Tensor key_mask = CacheMask(heads, added, state);
    return Call(placed, Masks(key_mask, /*causal=*/true, 0)).slice(1, before);
  }

 private:
  const int64_t local_context_;
};

class ExactTopk : public Softmax {
 public:
  ExactTopk(const ModelConfig& layer, MixerPlace place)
      : Softmax(layer, place), topk_(KeyOf<int64_t>(layer, "topk")) {}

 protected:
  torch::Tensor Call(const Heads& heads,
                     const ops::AttentionMasks& masks) const override {
    return ops::ExactTopkAttention(heads.queries, heads.keys, heads.values,
                                   topk_, masks, Options())
        .out;
  }

 private:
  const int64_t topk_;
};

template <typename Kind>
std::shared_ptr<Mixer> MakeSoftmax(const ModelConfig& layer, MixerPlace place) {
  return std::make_shared<Kind>(layer, place);
}

}  // namespace

std::vector<MixerRow> softmax::Mixers() {
  return {{"full", MakeSoftmax<Full>},
          {"local", MakeSoftmax<Local>},
          {"exact-topk", MakeSoftmax<ExactTopk>},
          {"conditional-full", MakeConditional},
          GatedSoftmaxRow()};
}

}  // namespace tarn::nn
