#include "torch_nn/mixers/mlstm/mlstm.h"

#include <cmath>

#include "mixers/mlstm/form.h"
#include "torch_nn/mixers/common/projected.h"
#include "torch_nn/mixers/common/recurrent_rows.h"
#include "torch_nn/mixers/mixer.h"
#include "torch_nn/state/lengths.h"
#include "torch_ops/cells/cells.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {
namespace {

// The first values of the biases of the gates, in xLSTM-7B.
constexpr double kInputBias = -10.0, kForgetFrom = 3.0, kForgetTo = 6.0;
// A maximum of nothing: any other is larger, and differences are finite.
constexpr double kNoMaximum = -1e30;

// What the rows [B, T, ...] of a call give the cell, and z [B, T, H, V].
struct MlstmRows {
  ops::MlstmCall cell;
  torch::Tensor z;
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
    MlstmRows rows = Project(x, norm, {});
    rows.cell.return_state = true;
    const auto [out, own, most] = ops::Mlstm(rows.cell);
    // The gates' sum has m in front of the piece, which is 0, less that after.
    const torch::Tensor decays =
        std::get<0>(ops::MlstmGates(rows.cell)).sum(1) + most;
    const auto earlier = cut.Earlier(
        {own, decays, most}, {torch::zeros_like(own), torch::zeros_like(most),
                              torch::full_like(most, kNoMaximum)});
    torch::Tensor maximum = torch::zeros_like(most);
    torch::Tensor before = torch::zeros_like(own);
    const auto factor = [](const torch::Tensor& logarithm) {
      return logarithm.exp().unsqueeze(-1).unsqueeze(-1);
    };
    for (const std::vector<torch::Tensor>& piece : earlier) {
      const torch::Tensor decayed = piece[1] + maximum;
      const torch::Tensor next = torch::maximum(decayed, piece[2]).detach();
      before =
          factor(decayed - next) * before + factor(piece[2] - next) * piece[0];
      maximum = next;
    }
    rows.cell.return_state = false;
    rows.cell.initial_state = before;
    rows.cell.initial_maximum = maximum;
    return Normed(rows, std::get<0>(ops::Mlstm(rows.cell)));
  }

  torch::Tensor Continue(const torch::Tensor& x, const MixerContext&,
                         const NewTokens& taken, MixerState& state) override {
    MlstmRows rows = Project(x, nullptr, PrefixMask("mlstm", taken.lengths, x));
    rows.cell.initial_state = state["S"];
    rows.cell.initial_maximum = state["m"];
    rows.cell.return_state = true;
    const auto [out, last, maximum] = ops::Mlstm(rows.cell);
    state["S"] = last;
    state["m"] = maximum;
    return Normed(rows, out);
  }

 private:
  torch::Tensor MixWhole(const torch::Tensor& x, const NormLayer* norm,
                         const torch::Tensor& kept) {
    const MlstmRows rows = Project(x, norm, kept);
    return Normed(rows, std::get<0>(ops::Mlstm(rows.cell)));
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
      return AsHeads(parts[part], s_.heads);
    };
    MlstmRows rows;
    rows.z = heads(3);
    ops::MlstmCall& cell = rows.cell;
    cell.queries = heads(0);
    cell.keys = heads(1);
    cell.values = heads(2);
    cell.input_gates = parts[4];
    cell.forget_gates = parts[5];
    cell.input_bias = input_->bias;
    cell.forget_bias = forget_->bias;
    cell.softcap = s_.softcap;
    cell.kept = ops::NoneOr(kept);
    cell.scale = 1 / std::sqrt(static_cast<double>(s_.d_key));
    return rows;
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
