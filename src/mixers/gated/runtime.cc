#include "mixers/gated/runtime.h"

#include <algorithm>
#include <cmath>

#include "kernels/decay/decay_attention.h"
#include "kernels/decay_gate/decay_gate.h"
#include "kernels/decay_gate/depth_bounds.h"
#include "kernels/delta/delta_attention.h"
#include "kernels/gate_rows/gate_rows.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/head_scale/head_scale.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rotary/rotary.h"
#include "kernels/swiglu/swiglu.h"
#include "kernels/unit_norm/unit_norm.h"
#include "mixers/common/runtime_convolution.h"
#include "mixers/gated/runtime_columns.h"

namespace tarn::mixers {
namespace {

enum GatedTensor : int64_t { kS, kWindow };  // of the spec's state

/// What a form holds besides its matrices.
struct GatedVectors {
  std::vector<float> log_decay;       // [H]
  std::vector<float> rates, dt_bias;  // exp(A_log) of each gate; [gates]
  std::vector<float> lower_bound;     // [H K]
  std::vector<float> skip;            // D [H]
  std::vector<float> norm;            // [V] or [H V]
};

// The layer's bounds, of those that the first layer makes for all.
std::vector<float> ReadBounds(const GatedSizes& s, MixerTensors& tensors) {
  if (!s.learns_bounds) return tensors.Vector("lower_bound");
  std::vector<float>& all = tensors.passed()["bounds"];
  if (!s.reads_bounds) {
    all = tensors.Vector("bound_logits");
    DepthBounds(all.data(), s.depth, s.gates, all.data());
  }
  const auto own = all.begin() + tensors.layer() * s.gates;
  return {own, own + s.gates};
}

GatedVectors ReadVectors(const GatedForm& form, const GatedSizes& s,
                         MixerTensors& tensors) {
  GatedVectors v;
  if (form.constant()) v.log_decay = tensors.Vector("log_decay");
  if (form.bounded()) v.lower_bound = ReadBounds(s, tensors);
  if (form.softplus()) {
    const std::vector<float> logs = tensors.Vector("A_log");  // [H]
    const size_t width = static_cast<size_t>(s.gates / s.heads);
    for (const float log : logs)
      v.rates.insert(v.rates.end(), width, std::exp(log));
    v.dt_bias = tensors.Vector("dt_bias");
  }
  if (form.skip) v.skip = tensors.Vector("D");
  if (form.norm) v.norm = tensors.Vector("norm.weight");
  return v;
}

GateForm RowForm(DecayGate gate) {
  switch (gate) {
    case DecayGate::kLogSigmoid:
      return GateForm::kLogSigmoid;
    case DecayGate::kBounded:
      return GateForm::kBounded;
    default:
      return GateForm::kSoftplus;
  }
}

class Gated final : public RuntimeMixer {
 public:
  Gated(const GatedForm& form, const ModelConfig& layer, MixerTensors& tensors)
      : form_(form),
        s_(SizesOf(form_, layer)),
        at_(form_, s_),
        v_(ReadVectors(form_, s_, tensors)),
        rotary_(form.rotary && layer.positions == Positions::kRotary),
        beta_scale_(KeyOf<bool>(layer, "negative_eigenvalues") ? 2.0f : 1.0f) {
    if (s_.width > 0) {
      convolution_ = RuntimeConvolution(tensors, s_.channels, s_.width,
                                        form.convolution_bias);
    }
    in_ = tensors.Stack(at_.names, at_.widths, s_.d_model, s_.in_bias);
    if (form.low_rank()) {
      decay_up_ = tensors.Stack({"decay_up_projection"}, {s_.gates}, s_.rank,
                                form.gate == DecayGate::kLogSigmoid);
    }
    if (form.low_rank_output_gate) {
      gate_up_ = tensors.Stack({"gate_up_projection"}, {s_.values}, s_.rank,
                               form.output_gate_bias);
    }
    out_ =
        tensors.Stack({"out_projection"}, {s_.d_model}, s_.values, s_.out_bias);
    gates_ = {.form = RowForm(form.gate),
              .count = s_.gates,
              .rates = v_.rates.data(),
              .bias = form.bounded()    ? v_.lower_bound.data()
                      : form.softplus() ? v_.dt_bias.data()
                                        : nullptr,
              .scale = 1.0f / kLogSigmoidDivisor};
    if (form.skip) {
      gates_.least = static_cast<float>(s_.least_step);
      if (s_.most_step > 0) gates_.most = static_cast<float>(s_.most_step);
    }
    norm_ = {.groups = s_.norm_groups,
             .width = s_.norm_width,
             .eps = s_.norm_eps,
             .activation = form.output_gate == OutputGate::kSigmoid
                               ? NormGate::kSigmoid
                               : NormGate::kSilu,
             .gate_first = form.gate_first,
             .weight_by_group = !s_.shared_norm};
  }

  int64_t bytes() const override {
    return RuntimeMixer::bytes() + decay_up_.bytes() + gate_up_.bytes();
  }
  int64_t row_floats() const override { return at_.extra_width; }

  // The parts before and after the recurrence treat each row separately; the
  // recurrence is a task for each sequence and key head.
  void Mix(MixerBlock& block, int64_t layer) const override {
    MakeGates(block);
    Convolve(block, layer);
    block.ForRows(8 * (s_.channels + s_.gates),
                  [&](int64_t row) { Prepare(block, row); });
    const int64_t segments = static_cast<int64_t>(block.segments.size());
    // About four state entries a nanosecond.
    const int64_t ns =
        s_.heads / s_.key_heads * s_.d_key * s_.d_value / 4 + 200;
    block.ForTasks(
        segments * s_.key_heads,
        ns * ((block.rows() + segments - 1) / segments),
        [&](int64_t task, int) {
          Advance(block,
                  block.segments[static_cast<size_t>(task / s_.key_heads)],
                  layer, task % s_.key_heads);
        });
    block.ForRows(8 * s_.values, [&](int64_t row) { Finish(block, row); });
  }

  // The convolution and norms over all heads need whole rows between the parts.
  bool one_region() const override { return false; }
  int64_t shares() const override { return s_.key_heads; }
  void Step(MixerBlock& block, int64_t layer, int64_t begin, int64_t end,
            int) const override {
    if (begin == 0 && end > 0) Mix(block, layer);
  }
  const void* Reads(const SequenceState& state, int64_t layer,
                    int64_t share) const override {
    return state.Tensor(layer, kS) + share * GroupEntries();
  }

 private:
  int64_t GroupEntries() const {
    return s_.heads / s_.key_heads * s_.d_key * s_.d_value;
  }

  // Queries, keys and values as the recurrence reads them.
  Rows Queries(const MixerBlock& block) const {
    return s_.width > 0 ? Columns(block.extra, at_.convolved)
                        : Columns(block.in, at_.query);
  }
  Rows Keys(const MixerBlock& block) const {
    if (form_.bounded()) return Columns(block.extra, at_.made_keys);
    return s_.width > 0 ? Columns(block.extra, at_.convolved + s_.keys)
                        : Columns(block.in, at_.key);
  }
  Rows Convolved(const MixerBlock& block) const {
    return s_.width > 0 ? Columns(block.extra, at_.convolved + 2 * s_.keys)
                        : Columns(block.in, at_.value);
  }
  Rows Values(const MixerBlock& block) const {
    return form_.skip ? Columns(block.extra, at_.stepped_values)
                      : Convolved(block);
  }
  const float* OutputGateRow(const MixerBlock& block, int64_t row) const {
    if (form_.output_gate == OutputGate::kNone) return nullptr;
    return form_.low_rank_output_gate ? block.extra[row] + at_.made_gate
                                      : block.in[row] + at_.gate;
  }
  static Rows Columns(const Rows& rows, int64_t at) {
    return {rows.data + at, rows.stride};
  }

  // The second halves of projections of low rank.
  void MakeGates(MixerBlock& block) const {
    const auto up = [&](const WeightMatrix& w, int64_t from, int64_t to) {
      PackedMatMul(block.in.data + from, block.in.stride, block.rows(), w,
                   {block.extra.data + to, block.extra.stride},
                   block.executor());
    };
    if (form_.low_rank()) up(decay_up_, at_.decay_down, at_.gates);
    if (form_.low_rank_output_gate) up(gate_up_, at_.gate_down, at_.made_gate);
  }

  void Convolve(MixerBlock& block, int64_t layer) const {
    if (s_.width == 0) return;
    convolution_.Run(block, layer, kWindow, Columns(block.in, at_.query),
                     Columns(block.extra, at_.convolved));
  }

  // Everything that a row needs before the recurrence, in place.
  void Prepare(const MixerBlock& block, int64_t row) const {
    float* in = block.in[row];
    if (s_.width == 0) {
      const bool convolved = form_.convolution;  // of width 0: silu alone
      if (convolved || form_.silu_queries) Silu(in + at_.query, s_.keys);
      if (convolved || form_.silu_keys_values) {
        Silu(in + at_.key, s_.keys);
        Silu(in + at_.value, s_.values);
      }
    }
    if (rotary_) {  // queries and keys are adjacent
      const float* cos = block.places[row];
      RotateRow(cos, cos + s_.d_key / 2, 2 * s_.heads, s_.d_key,
                in + at_.query);
    }
    if (form_.unit) {
      UnitRow(s_.key_heads, s_.d_key, kUnitEps, Queries(block)[row]);
      UnitRow(s_.key_heads, s_.d_key, kUnitEps, Keys(block)[row]);
    }
    if (form_.delta) {
      float* betas = in + at_.beta;
      SigmoidRow(betas, s_.heads, betas);
      for (int64_t h = 0; h < s_.heads; ++h) betas[h] *= beta_scale_;
    }
    if (form_.projected()) Decay(block, row);
  }

  static void Silu(float* x, int64_t count) { SiluRow(x, count, x); }

  void Decay(const MixerBlock& block, int64_t row) const {
    float* gates = block.extra[row] + at_.gates;
    if (form_.skip) return DecayWithSteps(block, row, gates);
    const float* x = form_.low_rank() ? gates : block.in[row] + at_.decay;
    DecayGateRow(gates_, x, gates,
                 form_.bounded() ? Keys(block)[row] : nullptr);
  }

  // The gates, and v = dt x with their steps dt, a head. The steps stand where
  // the gates will, which are made in place of their projection.
  void DecayWithSteps(const MixerBlock& block, int64_t row,
                      float* gates) const {
    float* projected = block.in[row] + at_.decay;
    DecayGateRow(gates_, projected, projected, gates);
    HeadScaleRow(s_.heads, s_.d_value, Convolved(block)[row], gates,
                 /*base=*/nullptr, Values(block)[row]);
    std::copy_n(projected, s_.heads, gates);
  }

  // The rows of a segment over the states of one key head.
  void Advance(const MixerBlock& block, const Segment& segment, int64_t layer,
               int64_t key_head) const {
    const int64_t group = s_.heads / s_.key_heads, first = key_head * group;
    RecurrentInputs in;
    in.queries = View(Columns(Queries(block), key_head * s_.d_key), segment, 1,
                      s_.d_key);
    in.keys =
        View(Columns(Keys(block), key_head * s_.d_key), segment, 1, s_.d_key);
    in.values = View(Columns(Values(block), first * s_.d_value), segment, group,
                     s_.d_value);
    if (form_.constant()) in.head_gates = v_.log_decay.data() + first;
    if (form_.projected()) {
      const int64_t width = s_.gates / s_.heads;
      in.gates = View(Columns(block.extra, at_.gates + first * width), segment,
                      group, width);
    }
    if (form_.delta) {
      in.betas = View(Columns(block.in, at_.beta + first), segment, group, 1);
    }
    float* state = segment.state->Tensor(layer, kS) + key_head * GroupEntries();
    const RecurrentState states = {.state = state, .next = state};
    const TensorView out = View(Columns(block.out, first * s_.d_value), segment,
                                group, s_.d_value);
    SerialExecutor serial;
    const RecurrentOptions options = {.scale = s_.scale};
    if (form_.delta) {
      DeltaAttentionStep(options, in, states, out, serial);
    } else {
      DecayAttentionStep(options, in, states, out, serial);
    }
  }

  // The output norm and gate, in place; only a gate of silu is without a norm.
  void Finish(const MixerBlock& block, int64_t row) const {
    float* out = block.out[row];
    if (form_.skip) {
      HeadScaleRow(s_.heads, s_.d_value, Convolved(block)[row], v_.skip.data(),
                   out, out);
    }
    if (!form_.norm) {
      SerialExecutor serial;
      SwigluForward({}, 1, s_.values, OutputGateRow(block, row), out, out,
                    serial);
      return;
    }
    GatedNormRow(norm_, out, OutputGateRow(block, row), v_.norm.data(),
                 /*bias=*/nullptr, out);
  }

  static TensorView View(const Rows& rows, const Segment& segment,
                         int64_t heads, int64_t width) {
    return {rows[segment.row],
            {1, segment.count, heads, width},
            {0, rows.stride, width},
            DType::kF32};
  }

  const GatedForm form_;
  const GatedSizes s_;
  const GatedColumns at_;
  const GatedVectors v_;
  const bool rotary_;
  const float beta_scale_;
  RuntimeConvolution convolution_;  // of width 0: empty
  WeightMatrix decay_up_, gate_up_;
  GateRow gates_;
  GatedNormOptions norm_;
};

std::unique_ptr<RuntimeMixer> MakeGated(const ModelConfig& layer,
                                        MixerTensors& tensors) {
  return std::make_unique<Gated>(
      FormOf(*FindGatedForm(Name(layer.attention)), layer), layer, tensors);
}

}  // namespace

std::vector<RuntimeMixerRow> gated::RuntimeMixers() {
  std::vector<RuntimeMixerRow> rows;
  for (const GatedForm& form : GatedForms()) {
    rows.push_back({form.name, nullptr, MakeGated});
  }
  return rows;
}

}  // namespace tarn::mixers
