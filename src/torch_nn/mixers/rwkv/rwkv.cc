#include "torch_nn/mixers/rwkv/rwkv.h"

#include "torch_nn/mixers/common/recurrent_rows.h"
#include "torch_nn/mixers/common/state_maps.h"
#include "torch_nn/mixers/rwkv/weights.h"
#include "torch_nn/state/token_shift.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/gated/gated.h"
#include "torch_ops/layers/layers.h"
#include "torch_ops/rows/row_ops.h"

namespace tarn::nn {
namespace {

// Added to the squared length of a key under the root, in double for float64
// layers.

// What the recurrence of a layer reads, each [B, T, H, K], and what multiplies
// its normalised result, in RWKV-6 by its silu.
struct RwkvInputs {
  torch::Tensor queries, keys, values, gates;
  torch::Tensor reads, writes;  // RWKV-7
  torch::Tensor factors;        // [B, T, H K]
};

// The state is S [B, H, K, K] and the row before the next one, shift [B, D].
class Rwkv : public Mixer {
 public:
  Rwkv(const ModelConfig& layer, MixerPlace place)
      : Mixer(layer, place),
        s_(RwkvSizesOf(layer)),
        w_(*this, s_, DepthOf(layer, place)) {}

  torch::Tensor OutputWeight() const override { return w_.out->weight; }

 protected:
  // x mixed for each input with step, the row before it less the row.
  virtual std::vector<torch::Tensor> Mixtures(const torch::Tensor& x,
                                              const torch::Tensor& step) const {
    return ops::RowMixes(x, step, w_.token_shift.unbind(0));
  }
  // first: the values of the first layer; undefined: the layer reads none.
  // made: where the first layer puts its values, else null.
  virtual RwkvInputs Inputs(const std::vector<torch::Tensor>& rows,
                            const torch::Tensor& first,
                            PassedRows* made) const = 0;
  virtual ops::GatedResult Recur(const RwkvInputs& in,
                                 const ops::GatedOptions& options) const = 0;
  torch::Tensor Mix(const torch::Tensor& x, const MixerContext& context,
                    const torch::Tensor& key_mask) override {
    const torch::Tensor rows = Kept(x, key_mask);
    RwkvInputs in = Prepare(rows, {}, context);
    // A key of zeros writes nothing and a gate of 0 lets the state pass.
    for (torch::Tensor* part : {&in.keys, &in.gates, &in.writes}) {
      *part = Kept(*part, key_mask);
    }
    return Normed(in, Recur(in, Options(in)).out);
  }

  // Zeros in front of the norm too, so that its gradient meets no NaN.
  torch::Tensor MixNormed(const torch::Tensor& x, const NormLayer& norm,
                          const MixerContext& context,
                          const torch::Tensor& key_mask) override {
    return Mix(norm.forward(Kept(x, key_mask)), context, key_mask);
  }

  torch::Tensor MixPiece(const torch::Tensor& x, const SequenceCut& cut,
                         const MixerContext& context,
                         const NormLayer* norm) override {
    const torch::Tensor rows = norm != nullptr ? norm->forward(x) : x;
    const RwkvInputs in = Prepare(rows, RowBeforePiece(rows, cut), context);
    ops::GatedOptions options = Options(in);
    options.initial_state = StateBefore(in, cut);
    return Normed(in, Recur(in, options).out);
  }

  torch::Tensor Continue(const torch::Tensor& x, const MixerContext& context,
                         const NewTokens& taken, MixerState& state) override {
    const torch::Tensor before = state["shift"];
    const RwkvInputs in = Prepare(x, before, context);
    ops::GatedOptions options = Options(in);
    options.initial_state = state["S"];
    options.lengths = ops::NoneOr(taken.lengths);
    options.return_state = true;
    const ops::GatedResult result = Recur(in, options);
    state["S"] = result.final_state;
    state["shift"] = LastRow(x, before, taken.added);
    return Normed(in, result.out);
  }

  const RwkvSizes s_;
  const RwkvWeights w_;

 private:
  // before: the row in front of x, [B, D]; absent: zeros.
  RwkvInputs Prepare(const torch::Tensor& x, const ops::OptionalTensor& before,
                     const MixerContext& context) const {
    torch::Tensor first;  // the values of the first layer, checked before work
    if (s_.reads_values) first = PassedRows::Read(context.passed, x, s_.width);
    PassedRows* made =
        s_.passes_values && !s_.reads_values ? context.passed : nullptr;
    return Inputs(Mixtures(x, ops::TokenShift(x, before)), first, made);
  }

  ops::GatedOptions Options(const RwkvInputs& in) const {
    ops::GatedOptions options;
    options.gates = in.gates;
    return options;
  }

  // Group norm, each head a group, and what follows it.
  torch::Tensor Normed(const RwkvInputs& in, const torch::Tensor& heads) const {
    ops::GatedNormCall call;
    call.x = heads;
    call.weight = w_.norm_weight.view({s_.heads, s_.d_key});
    call.bias = w_.norm_bias.view({s_.heads, s_.d_key});
    if (!s_.seven) call.gate = AsHeads(in.factors, s_.heads);
    call.eps = s_.norm_eps;
    call.centred = true;
    const torch::Tensor normed = ops::GatedNorm(call);
    if (!s_.seven) return normed.flatten(2);
    return ops::GateCorrection(normed.flatten(2), in.queries, in.keys, w_.bonus,
                               in.values, in.factors)
        .to(heads.scalar_type());
  }

  // A piece maps the state S before it to A S + b; A is what becomes of the
  // identity while nothing is written, side by side with b.
  torch::Tensor StateBefore(const RwkvInputs& in,
                            const SequenceCut& cut) const {
    const int64_t width = s_.d_key;
    RwkvInputs own = in;
    own.values = torch::cat({in.values, torch::zeros_like(in.values)}, -1);
    const torch::TensorOptions wide =
        in.values.options().dtype(WideType(in.values));
    ops::GatedOptions options = Options(in);
    options.initial_state =
        torch::cat(
            {torch::zeros({width, width}, wide), torch::eye(width, wide)}, -1)
            .expand({in.values.size(0), s_.heads, width, 2 * width})
            .contiguous();
    options.return_state = true;
    const torch::Tensor last = Recur(own, options).final_state;
    const torch::Tensor added = last.slice(-1, 0, width),
                        map = last.slice(-1, width);
    const auto earlier = cut.Earlier(
        {added, map}, {torch::zeros_like(added), torch::zeros_like(map)});
    return StateAfter(earlier);
  }
};

class Seven final : public Rwkv {
 public:
  using Rwkv::Rwkv;

 protected:
  RwkvInputs Inputs(const std::vector<torch::Tensor>& y,
                    const torch::Tensor& first,
                    PassedRows* made) const override {
    const auto low = [](const torch::Tensor& x, const torch::nn::Linear& down,
                        const torch::nn::Linear& up, auto act) {
      return ops::Affine(act(ops::Affine(x, down->weight)), up->weight,
                         ops::NoneOr(up->bias));
    };
    const auto same = [](const torch::Tensor& x) { return x; };
    RwkvInputs in;
    in.queries = Heads(ops::Affine(y[kShiftQuery], w_.query->weight));
    torch::Tensor values = ops::Affine(y[kShiftValue], w_.value->weight);
    if (first.defined()) {
      values = torch::lerp(values, first,
                           torch::sigmoid(low(y[kShiftValue], w_.value_down,
                                              w_.value_up, same)));
    }
    if (made != nullptr) made->rows = values;
    in.values = Heads(values);
    ops::DecayGateArguments gate;
    gate.x = low(y[kShiftDecay], w_.decay_down, w_.decay_up,
                 [](const torch::Tensor& x) { return x.tanh(); });
    gate.form = "sigmoid";
    gate.scale = kRwkvDecay;
    in.gates = Heads(ops::DecayGate(gate).gates);
    in.factors = low(y[kShiftGate], w_.gate_down, w_.gate_up,
                     [](const torch::Tensor& x) { return x.sigmoid(); });
    const torch::Tensor rates =
        torch::sigmoid(low(y[kShiftRate], w_.rate_down, w_.rate_up, same));
    const torch::Tensor keys = ops::Affine(y[kShiftKey], w_.key->weight);
    const torch::Tensor unit =
        ops::UnitNorm(Heads(keys * w_.key_scale), s_.unit_eps)
            .to(keys.scalar_type());
    in.keys =
        Heads(ops::ApplyEntryForm(keys, "mixed_gate", rates, w_.key_rate));
    in.reads = -unit;
    in.writes = unit * Heads(rates);
    return in;
  }

  ops::GatedResult Recur(const RwkvInputs& in,
                         const ops::GatedOptions& options) const override {
    return ops::DplrAttention(in.queries, in.keys, in.values, in.reads,
                              in.writes, options);
  }

 private:
  torch::Tensor Heads(const torch::Tensor& x) const {
    return AsHeads(x, s_.heads);
  }
};

class Six final : public Rwkv {
 public:
  using Rwkv::Rwkv;

 protected:
  // With shifts that depend on a first mixture of the two rows, a row each.
  std::vector<torch::Tensor> Mixtures(
      const torch::Tensor& x, const torch::Tensor& step) const override {
    const torch::Tensor first = ops::RowMixes(x, step, {w_.shift_base})[0];
    const torch::Tensor down = ops::Affine(first, w_.shift_down->weight).tanh();
    const auto downs = down.chunk(s_.inputs, 2);
    const auto ups = w_.shift_up.chunk(s_.inputs, 0);
    std::vector<torch::Tensor> rows;
    for (size_t n = 0; n < downs.size(); ++n) {
      const torch::Tensor shift = ops::Affine(downs[n], ups[n]) +
                                  w_.token_shift[static_cast<int64_t>(n)];
      rows.push_back(torch::addcmul(x, step, shift));
    }
    return rows;
  }

  RwkvInputs Inputs(const std::vector<torch::Tensor>& y, const torch::Tensor&,
                    PassedRows*) const override {
    const auto heads = [&](const torch::Tensor& x) {
      return AsHeads(x, s_.heads);
    };
    RwkvInputs in;
    in.queries = heads(ops::Affine(y[kShiftQuery], w_.query->weight));
    in.keys = heads(ops::Affine(y[kShiftKey], w_.key->weight));
    in.values = heads(ops::Affine(y[kShiftValue], w_.value->weight));
    const torch::Tensor decay =
        ops::Affine(ops::Affine(y[kShiftDecay], w_.decay_down->weight).tanh(),
                    w_.decay_up->weight, ops::NoneOr(w_.decay_up->bias));
    ops::DecayGateArguments gate;
    gate.x = decay;
    gate.form = "exponential";
    in.gates = heads(ops::DecayGate(gate).gates);
    in.factors = ops::Affine(y[kShiftGate], w_.gate->weight);
    return in;
  }

  ops::GatedResult Recur(const RwkvInputs& in,
                         const ops::GatedOptions& options) const override {
    return ops::DecayAttention(in.queries, in.keys, in.values, options,
                               w_.bonus);
  }
};

template <typename T>
std::shared_ptr<Mixer> Make(const ModelConfig& layer, MixerPlace place) {
  return std::make_shared<T>(layer, place);
}

}  // namespace

std::vector<MixerRow> rwkv::Mixers() {
  return {{"rwkv6", Make<Six>}, {"rwkv7", Make<Seven>}};
}

}  // namespace tarn::nn
