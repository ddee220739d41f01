// The module of mixers/softmax/form.h with its own keys and values: 'full',
// 'local', 'gated-full'.
#include "torch_nn/mixers/softmax/softmax.h"

#include "torch_nn/mixers/common/cached.h"
#include "torch_nn/mixers/softmax/form_parts.h"

namespace tarn::nn {
namespace {

// Rows of one layer before attention; queries and keys normalised and rotated.
struct SoftmaxRows {
  Heads heads;
  torch::Tensor gate;  // [B, T, H, V]; undefined without one
};

// The state is a cache, as CachedMixer's with key_heads heads; a memory is the
// same under a mask.
class SoftmaxMixer : public Mixer {
 public:
  SoftmaxMixer(const ModelConfig& layer, MixerPlace place)
      : Mixer(layer, place),
        s_(layer),
        dropout_(Spec(layer.attention).can.dropout
                     ? KeyOf<double>(layer, "attention_dropout")
                     : 0.0) {
    const auto linear = [&](const char* name, int64_t rows, int64_t columns,
                            bool bias) {
      return RegisterLinear(*this, name, rows, columns, bias);
    };
    query_ = linear("query_projection", s_.queries(), s_.d_model, s_.qkv_bias);
    key_ = linear("key_projection", s_.keys(), s_.d_model, s_.qkv_bias);
    value_ = linear("value_projection", s_.values(), s_.d_model, s_.qkv_bias);
    if (s_.gated) {
      gate_ = linear("gate_projection", s_.outputs(), s_.d_model, s_.qkv_bias);
    }
    if (s_.norm != HeadNorm::kNone) {
      const bool full = s_.norm == HeadNorm::kFull;
      query_norm_ =
          RegisterNorm(*this, "query_norm", full ? s_.queries() : s_.d_key);
      key_norm_ = RegisterNorm(*this, "key_norm", full ? s_.keys() : s_.d_key);
    }
    if (s_.sinks) {
      sinks_ = register_parameter("sinks", torch::zeros({s_.heads}));
    }
    out_ = linear("out_projection", s_.d_model, s_.outputs(), s_.out_bias);
    if (!Spec(layer.attention).can.cross) return;
    memory_form_ = std::make_shared<StateForm>(*state_form_);
    memory_form_->slots.push_back(
        {{.name = "key_mask", .shape = {}}, /*mask=*/true});
  }

  torch::Tensor OutputWeight() const override { return out_->weight; }
  torch::Tensor OutputBias() const override { return out_->bias; }

 protected:
  torch::Tensor Mix(const torch::Tensor& x, const MixerContext& context,
                    const torch::Tensor& key_mask) override {
    return MixWhole(x, nullptr, context.rotary, key_mask);
  }

  torch::Tensor MixNormed(const torch::Tensor& x, const NormLayer& norm,
                          const MixerContext& context,
                          const torch::Tensor& key_mask) override {
    return MixWhole(x, &norm, context.rotary, key_mask);
  }

  torch::Tensor MixPiece(const torch::Tensor& x, const SequenceCut& cut,
                         const MixerContext& context,
                         const NormLayer* norm) override {
    const SoftmaxRows rows = Project(x, norm, context.rotary);
    // Side by side, so that both travel at once.
    const torch::Tensor before =
        cut.EarlierRows(torch::cat({rows.heads.keys, rows.heads.values}, 3),
                        state_form_->window);
    const Heads all = {
        rows.heads.queries,
        torch::cat({before.slice(3, 0, s_.d_key), rows.heads.keys}, 1),
        torch::cat({before.slice(3, s_.d_key), rows.heads.values}, 1)};
    return Attend(rows, all, Masks({}, /*causal=*/true, before.size(1)));
  }

  torch::Tensor Continue(const torch::Tensor& x, const MixerContext& context,
                         const NewTokens& taken, MixerState& state) override {
    const SoftmaxRows rows = Project(x, nullptr, context.rotary);
    const Heads all = {rows.heads.queries,
                       torch::cat({state["keys"], rows.heads.keys}, 1),
                       torch::cat({state["values"], rows.heads.values}, 1)};
    torch::Tensor out = Attend(rows, all,
                               Masks(CacheMask(rows.heads, taken.added, state),
                                     /*causal=*/true, state["keys"].size(1)));
    const int64_t seq_len = x.size(1), kept = state.form().window;
    state["keys"] = AlignAtEnd(all.keys, taken.added, seq_len, kept);
    state["values"] = AlignAtEnd(all.values, taken.added, seq_len, kept);
    return out;
  }

  void FillMemory(const torch::Tensor& memory, const torch::Tensor& key_mask,
                  MixerState& state) const override {
    const torch::Tensor packed =
        ops::Affine(memory, torch::cat({key_->weight, value_->weight}),
                    torch::cat({key_->bias, value_->bias}));
    state["keys"] = HeadsOf(packed.slice(2, 0, s_.keys()), s_.key_heads);
    state["values"] = HeadsOf(packed.slice(2, s_.keys()), s_.key_heads);
    state["key_mask"] = key_mask;
  }

  torch::Tensor ReadMemory(const torch::Tensor& x,
                           const MixerState& memory) override {
    SoftmaxRows rows;
    rows.heads = {
        HeadsOf(ops::Affine(x, query_->weight, query_->bias), s_.heads),
        memory["keys"], memory["values"]};
    return Attend(rows, rows.heads,
                  Masks(memory["key_mask"], /*causal=*/false, 0));
  }

 private:
  torch::Tensor MixWhole(const torch::Tensor& x, const NormLayer* norm,
                         const RotaryTable& rotary,
                         const torch::Tensor& key_mask) {
    const SoftmaxRows rows = Project(x, norm, rotary);
    return Attend(rows, rows.heads, Masks(key_mask, place_.causal, 0));
  }

  SoftmaxRows Project(const torch::Tensor& x, const NormLayer* norm,
                      const RotaryTable& rotary) const {
    std::vector<torch::Tensor> weights = {query_->weight, key_->weight,
                                          value_->weight};
    std::vector<torch::Tensor> biases;
    if (s_.qkv_bias) biases = {query_->bias, key_->bias, value_->bias};
    std::vector<int64_t> widths = {s_.queries(), s_.keys(), s_.values()};
    if (s_.gated) {
      weights.push_back(gate_->weight);
      if (s_.qkv_bias) biases.push_back(gate_->bias);
      widths.push_back(s_.outputs());
    }
    const auto parts =
        ProjectRows(x, norm, std::move(weights), std::move(biases))
            .split_with_sizes(widths, 2);
    SoftmaxRows rows;
    rows.heads.queries = Prepared(parts[0], s_.heads, query_norm_, rotary);
    rows.heads.keys = Prepared(parts[1], s_.key_heads, key_norm_, rotary);
    rows.heads.values = HeadsOf(parts[2], s_.key_heads);
    if (s_.gated) rows.gate = HeadsOf(parts[3], s_.heads);
    return rows;
  }

  torch::Tensor Prepared(const torch::Tensor& rows, int64_t count,
                         const torch::Tensor& weight,
                         const RotaryTable& rotary) const {
    const double eps = s_.norm_eps;
    torch::Tensor x = HeadsOf(rows, count);
    if (s_.norm == HeadNorm::kHead) x = RootNorm(x, weight, eps);
    if (s_.norm == HeadNorm::kFull) {
      x = HeadsOf(RootNorm(rows.unsqueeze(2), weight, eps).squeeze(2), count);
    }
    return s_.rotary == 0 ? x : RotateFirst(x, s_.rotary, rotary.At(s_.table));
  }

  // Keys and values of a group are repeated for its heads: [B, T, H V].
  torch::Tensor Attend(const SoftmaxRows& rows, const Heads& all,
                       const ops::AttentionMasks& masks) const {
    const auto spread = [&](const torch::Tensor& x) {
      return s_.group() == 1 ? x : x.repeat_interleave(s_.group(), 2);
    };
    ops::SoftmaxOptions options =
        OptionsOf(s_, sinks_, is_training() ? dropout_ : 0.0);
    if (masks.causal) options.window = s_.window;
    const bool around = s_.context > 0 && !masks.causal;
    const torch::Tensor keys = spread(all.keys), values = spread(all.values);
    const torch::Tensor out =
        around
            ? ops::LocalAttention(all.queries, keys, values, s_.context, masks,
                                  options)
            : ops::FullAttention(all.queries, keys, values, masks, options).out;
    if (!rows.gate.defined()) return out.flatten(2);
    return (out * torch::sigmoid(rows.gate)).flatten(2);
  }

  const SoftmaxForm s_;
  const double dropout_;
  torch::nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr};
  torch::nn::Linear gate_{nullptr}, out_{nullptr};
  torch::Tensor query_norm_, key_norm_;  // [K], or [H K] and [G K]
  torch::Tensor sinks_;                  // [H]
};

std::shared_ptr<Mixer> MakeSoftmaxForm(const ModelConfig& layer,
                                       MixerPlace place) {
  if (SoftmaxForm(layer).latent > 0) return MakeLatent(layer, place);
  return std::make_shared<SoftmaxMixer>(layer, place);
}

}  // namespace

std::vector<MixerRow> softmax::Mixers() {
  return {{"full", MakeSoftmaxForm},
          {"local", MakeSoftmaxForm},
          {kGatedSoftmax, MakeSoftmaxForm},
          {"exact-topk", MakeExactTopk},
          {"conditional-full", MakeConditional}};
}

}  // namespace tarn::nn
