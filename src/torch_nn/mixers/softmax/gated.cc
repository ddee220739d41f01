// The module of mixers/softmax/form.h.
#include "mixers/softmax/form.h"
#include "torch_nn/mixers/common/cached.h"
#include "torch_nn/mixers/softmax/softmax.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {
namespace {

// Rows of one layer before attention; queries and keys normalised and turned.
struct GatedRows {
  Heads heads;
  torch::Tensor gate;  // [B, T, H, V]; undefined without one
};

// The state is a cache, as CachedMixer's with key_heads heads.
class GatedSoftmax : public Mixer {
 public:
  GatedSoftmax(const ModelConfig& layer, MixerPlace place)
      : Mixer(layer, place), s_(layer) {
    const auto linear = [&](const char* name, int64_t rows, int64_t columns) {
      return register_module(
          name, torch::nn::Linear(
                    torch::nn::LinearOptions(columns, rows).bias(false)));
    };
    const auto norm = [&](const char* name) {
      return register_module(name, std::make_shared<torch::nn::Module>(name))
          ->register_parameter("weight", torch::ones({s_.d_key}));
    };
    query_ = linear("query_projection", s_.queries(), s_.d_model);
    key_ = linear("key_projection", s_.keys(), s_.d_model);
    value_ = linear("value_projection", s_.values(), s_.d_model);
    if (s_.gated) gate_ = linear("gate_projection", s_.outputs(), s_.d_model);
    if (s_.normed) {
      query_norm_ = norm("query_norm");
      key_norm_ = norm("key_norm");
    }
    out_ = linear("out_projection", s_.d_model, s_.outputs());
  }

  torch::Tensor OutputWeight() const override { return out_->weight; }

 protected:
  torch::Tensor Mix(const torch::Tensor& x, const RotaryTable& rotary,
                    const torch::Tensor& key_mask) override {
    return MixWhole(x, nullptr, rotary, key_mask);
  }

  torch::Tensor MixNormed(const torch::Tensor& x, const NormLayer& norm,
                          const RotaryTable& rotary,
                          const torch::Tensor& key_mask) override {
    return MixWhole(x, &norm, rotary, key_mask);
  }

  torch::Tensor MixPiece(const torch::Tensor& x, const SequenceCut& cut,
                         const RotaryTable& rotary,
                         const NormLayer* norm) override {
    const GatedRows rows = Project(x, norm, rotary);
    // Side by side, so that both travel at once.
    const torch::Tensor before = cut.EarlierRows(
        torch::cat({rows.heads.keys, rows.heads.values}, 3), kMaxLength);
    const Heads all = {
        rows.heads.queries,
        torch::cat({before.slice(3, 0, s_.d_key), rows.heads.keys}, 1),
        torch::cat({before.slice(3, s_.d_key), rows.heads.values}, 1)};
    return Attend(rows, all, Masks({}, /*causal=*/true, before.size(1)));
  }

  torch::Tensor Continue(const torch::Tensor& x, const RotaryTable& rotary,
                         const Taken& taken, MixerState& state) override {
    const GatedRows rows = Project(x, nullptr, rotary);
    const Heads all = {rows.heads.queries,
                       torch::cat({state["keys"], rows.heads.keys}, 1),
                       torch::cat({state["values"], rows.heads.values}, 1)};
    torch::Tensor out =
        Attend(rows, all,
               Masks(CacheMask(rows.heads, taken.added, state),
                     /*causal=*/true, state["keys"].size(1)));
    const int64_t seq_len = x.size(1), kept = state.form().window;
    state["keys"] = AlignAtEnd(all.keys, taken.added, seq_len, kept);
    state["values"] = AlignAtEnd(all.values, taken.added, seq_len, kept);
    return out;
  }

 private:
  torch::Tensor MixWhole(const torch::Tensor& x, const NormLayer* norm,
                         const RotaryTable& rotary,
                         const torch::Tensor& key_mask) {
    const GatedRows rows = Project(x, norm, rotary);
    return Attend(rows, rows.heads, Masks(key_mask, place_.causal, 0));
  }

  GatedRows Project(const torch::Tensor& x, const NormLayer* norm,
                    const RotaryTable& rotary) const {
    ops::LayerHeadsArguments a;
    a.x = x;
    a.weights = {query_->weight, key_->weight, value_->weight};
    if (s_.gated) a.weights.push_back(gate_->weight);
    if (norm != nullptr) {
      ops::ResidualNormArguments described;
      norm->Describe(described);
      a.gamma = described.gamma;
      a.beta = described.beta;
      a.eps = described.eps;
      a.norm_kind = described.kind;
    }
    std::vector<int64_t> widths = {s_.queries(), s_.keys(), s_.values()};
    if (s_.gated) widths.push_back(s_.outputs());
    const auto parts = ops::LayerHeads(a).split_with_sizes(widths, 2);
    const auto heads = [](const torch::Tensor& rows, int64_t count) {
      return rows.unflatten(2, {count, rows.size(2) / count});
    };
    GatedRows rows;
    rows.heads.queries =
        Prepared(heads(parts[0], s_.heads), query_norm_, rotary);
    rows.heads.keys = Prepared(heads(parts[1], s_.key_heads), key_norm_, rotary);
    rows.heads.values = heads(parts[2], s_.key_heads);
    if (s_.gated) rows.gate = heads(parts[3], s_.heads);
    return rows;
  }

  torch::Tensor Prepared(torch::Tensor x, const torch::Tensor& weight,
                         const RotaryTable& rotary) const {
    if (s_.normed) {
      ops::GatedNormCall call;
      call.x = x;
      call.weight = weight;
      call.eps = config_.norm_eps;
      x = ops::GatedNorm(call);
    }
    if (!rotary.defined() || s_.rotary == s_.d_key) return Rotate(x, rotary);
    const auto parts =
        x.split_with_sizes({s_.rotary, s_.d_key - s_.rotary}, 3);
    return torch::cat({Rotate(parts[0].contiguous(), rotary), parts[1]}, 3);
  }

  // Keys and values of a group are repeated for its heads: [B, T, H V].
  torch::Tensor Attend(const GatedRows& rows, const Heads& all,
                       const ops::AttentionMasks& masks) const {
    const auto spread = [&](const torch::Tensor& x) {
      return s_.group() == 1 ? x : x.repeat_interleave(s_.group(), 2);
    };
    const torch::Tensor out =
        ops::FullAttention(all.queries, spread(all.keys), spread(all.values),
                           masks)
            .out;
    if (!rows.gate.defined()) return out.flatten(2);
    return (out * torch::sigmoid(rows.gate)).flatten(2);
  }

  const GatedSoftmaxSizes s_;
  torch::nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr};
  torch::nn::Linear gate_{nullptr}, out_{nullptr};
  torch::Tensor query_norm_, key_norm_;  // [K]
};

std::shared_ptr<Mixer> Make(const ModelConfig& layer, MixerPlace place) {
  return std::make_shared<GatedSoftmax>(layer, place);
}

}  // namespace

MixerRow GatedSoftmaxRow() { return {kGatedSoftmax, Make}; }

}  // namespace tarn::nn
