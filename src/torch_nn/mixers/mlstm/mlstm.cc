#include "torch_nn/mixers/mlstm/mlstm.h"

#include <cmath>
#include <limits>

#include "mixers/mlstm/form.h"
#include "torch_nn/mixers/common/projected.h"
#include "torch_nn/mixers/common/recurrent_rows.h"
#include "torch_nn/mixers/mixer.h"
#include "torch_nn/state/lengths.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/gated/gated.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {
namespace {

// The first values of the biases of the gates, in xLSTM-7B.
constexpr double kInputBias = -10.0, kForgetFrom = 3.0, kForgetTo = 6.0;
// A maximum of nothing: any input gate is larger, and differences are finite.
constexpr double kNoMaximum = -1e30;

// What the recurrence reads of the rows [B, T, ...] of a call, wide.
struct MlstmRows {
  torch::Tensor queries, keys;  // [B, T, H, K]
  torch::Tensor values;         // [B, T, H, V + 1], a 1 at the end
  torch::Tensor inputs, kept;   // i and log sigma(f) [B, T, H]
  torch::Tensor z;              // [B, T, H, V]
};

// The state is S [B, H, K, V + 1], C with n as its last column, and m [B, H].
class Mlstm : public Mixer {
 public:
  Mlstm(const ModelConfig& layer, MixerPlace place)
      : Mixer(layer, place), s_(MlstmSizesOf(layer)) {
    const auto linear = [&](const char* name, int64_t rows, int64_t columns,
                            bool bias = false) {
      return register_module(
          name, torch::nn::Linear(
                    torch::nn::LinearOptions(columns, rows).bias(bias)));
    };
    query_ = linear("query_projection", s_.keys(), s_.d_model);
    key_ = linear("key_projection", s_.keys(), s_.d_model);
    value_ = linear("value_projection", s_.values(), s_.d_model);
    gate_ = linear("gate_projection", s_.values(), s_.d_model);
    input_ = linear("input_projection", s_.heads, s_.d_model, true);
    forget_ = linear("forget_projection", s_.heads, s_.d_model, true);
    const auto norm =
        register_module("norm", std::make_shared<torch::nn::Module>("norm"));
    norm_weight_ =
        norm->register_parameter("weight", torch::ones({s_.values()}));
    out_ = linear("out_projection", s_.d_model, s_.values());
    const torch::NoGradGuard no_grad;
    input_->bias.fill_(kInputBias);
    forget_->bias.copy_(torch::linspace(kForgetFrom, kForgetTo, s_.heads));
  }

  torch::Tensor OutputWeight() const override { return out_->weight; }

 protected:
  torch::Tensor Mix(const torch::Tensor& x, const MixerContext&,
                    const torch::Tensor& key_mask) override {
    return MixWhole(x, nullptr, key_mask);
  }

  torch::Tensor MixNormed(const torch::Tensor& x, const NormLayer& norm,
                          const MixerContext&,
                          const torch::Tensor& key_mask) override {
    return MixWhole(x, &norm, key_mask);
  }

  // A piece takes C to exp(sum log sigma(f)) C + own. Each is divided by the
  // exponential of its maximum, so that none overflows.
  torch::Tensor MixPiece(const torch::Tensor& x, const SequenceCut& cut,
                         const MixerContext&, const NormLayer* norm) override {
    const MlstmRows rows = Project(x, norm, {});
    torch::Tensor most =
        torch::full({x.size(0), s_.heads}, kNoMaximum, rows.inputs.options());
    const torch::Tensor own = std::get<1>(Recur(rows, {}, most, true));
    const auto earlier =
        cut.Earlier({own, rows.kept.sum(1), most},
                    {torch::zeros_like(own), torch::zeros_like(most),
                     torch::full_like(most, kNoMaximum)});
    torch::Tensor maximum = torch::zeros_like(most);
    torch::Tensor before = torch::zeros_like(own);
    const auto factor = [](const torch::Tensor& logarithm) {
      return logarithm.exp().unsqueeze(-1).unsqueeze(-1);
    };
    for (const std::vector<torch::Tensor>& piece : earlier) {
      const torch::Tensor decayed = piece[1] + maximum;
      const torch::Tensor next = torch::maximum(decayed, piece[2]).detach();
      before = factor(decayed - next) * before +
               factor(piece[2].detach() - next) * piece[0];
      maximum = next;
    }
    return Normed(rows, std::get<0>(Recur(rows, before, maximum, false)));
  }

  torch::Tensor Continue(const torch::Tensor& x, const MixerContext&,
                         const NewTokens& taken, MixerState& state) override {
    const MlstmRows rows =
        Project(x, nullptr, PrefixMask("mlstm", taken.lengths, x));
    torch::Tensor maximum = state["m"];
    const auto [out, last] = Recur(rows, state["S"], maximum, true);
    state["S"] = last;
    state["m"] = maximum;
    return Normed(rows, out);
  }

 private:
  torch::Tensor MixWhole(const torch::Tensor& x, const NormLayer* norm,
                         const torch::Tensor& kept) {
    const MlstmRows rows = Project(x, norm, kept);
    torch::Tensor maximum =
        torch::zeros({x.size(0), s_.heads}, rows.inputs.options());
    return Normed(rows, std::get<0>(Recur(rows, {}, maximum, false)));
  }

  // All that is made of x or of norm(x) alone. A token that is not kept does
  // not decay the state and writes nothing.
  MlstmRows Project(const torch::Tensor& x, const NormLayer* norm,
                    const torch::Tensor& kept) const {
    const auto parts =
        Kept(
            ProjectRows(
                Kept(x, kept), norm,
                {query_->weight, key_->weight, value_->weight,
                 torch::cat({gate_->weight, input_->weight, forget_->weight})}),
            kept)
            .split_with_sizes({s_.keys(), s_.keys(), s_.values(), s_.values(),
                               s_.heads, s_.heads},
                              2);
    const auto heads = [&](size_t part) {
      return AsHeads(WideRows(parts[part]), s_.heads);
    };
    MlstmRows rows;
    rows.queries = heads(0);
    rows.keys = heads(1);
    rows.values = torch::constant_pad_nd(heads(2), {0, 1}, 1.0);
    rows.z = AsHeads(parts[3], s_.heads);
    rows.inputs = Capped(WideRows(parts[4]) + input_->bias);
    if (kept.defined()) {
      rows.inputs =
          rows.inputs.masked_fill(kept.logical_not().unsqueeze(-1),
                                  -std::numeric_limits<double>::infinity());
    }
    rows.kept = Kept(
        torch::log_sigmoid(Capped(WideRows(parts[5]) + forget_->bias)), kept);
    return rows;
  }

  torch::Tensor Capped(const torch::Tensor& x) const {
    return s_.softcap == 0 ? x : s_.softcap * torch::tanh(x / s_.softcap);
  }

  // h [B, T, H, V] and, where it is wanted, the state after these rows.
  // initial: undefined for zeros. `maximum` [B, H], m before them, becomes that
  // after them.
  std::tuple<torch::Tensor, torch::Tensor> Recur(const MlstmRows& rows,
                                                 const torch::Tensor& initial,
                                                 torch::Tensor& maximum,
                                                 bool return_state) const {
    // m_t = F_t + max(m_0, max over s <= t of i_s - F_s), F the sum of log f.
    const torch::Tensor first = maximum.unsqueeze(1);
    torch::Tensor all = first;  // [B, T + 1, H]
    if (rows.inputs.size(1) > 0) {
      const torch::NoGradGuard no_grad;
      const torch::Tensor sums = rows.kept.cumsum(1);
      all = torch::cat(
          {first,
           sums + torch::maximum(first,
                                 std::get<0>((rows.inputs - sums).cummax(1)))},
          1);
    }
    const int64_t tokens = rows.inputs.size(1);
    const torch::Tensor after = all.slice(1, 1),
                        before = all.slice(1, 0, tokens);
    ops::GatedOptions options;
    options.gates = rows.kept + (before - after);
    options.initial_state = ops::NoneOr(initial);
    options.scale = 1 / std::sqrt(static_cast<double>(s_.d_key));
    options.return_state = return_state;
    const ops::GatedResult made = ops::DecayAttention(
        rows.queries, rows.keys * (rows.inputs - after).exp().unsqueeze(-1),
        rows.values, options);
    maximum = all.select(1, tokens);
    const torch::Tensor sums = torch::maximum(
        made.out.slice(-1, s_.d_value).abs(), (-after).exp().unsqueeze(-1));
    return {made.out.slice(-1, 0, s_.d_value) / (sums + kMlstmEps),
            made.final_state};
  }

  // The norm of each head and the output gate: [B, T, H V].
  torch::Tensor Normed(const MlstmRows& rows, const torch::Tensor& h) const {
    ops::GatedNormCall call;
    call.x = h.to(rows.z.scalar_type());
    call.weight = norm_weight_.view({s_.heads, s_.d_value});
    call.gate = rows.z;
    call.eps = config_.norm_eps;
    call.centred = true;
    call.activation = "sigmoid";
    return ops::GatedNorm(call).flatten(2);
  }

  const MlstmSizes s_;
  torch::nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr};
  torch::nn::Linear gate_{nullptr}, input_{nullptr}, forget_{nullptr};
  torch::nn::Linear out_{nullptr};
  torch::Tensor norm_weight_;
};

std::shared_ptr<Mixer> NewMlstm(const ModelConfig& layer, MixerPlace place) {
  return std::make_shared<Mlstm>(layer, place);
}

}  // namespace

std::vector<MixerRow> mlstm::Mixers() { return {{"mlstm", NewMlstm}}; }

}  // namespace tarn::nn
