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
#include "mixers/gated/runtime_features.h"

namespace tarn::mixers {
namespace {

enum GatedTensor : int64_t { kS, kWindow };  // of the spec's state

// Key heads from which a step's work is cut by them alone.
constexpr int64_t kManyKeyHeads = 8;

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
    if (form.mapped) {
      query_map_ = {s_.phi, "query", s_.phi.unit_queries, tensors};
      key_map_ = {s_.phi, "key", s_.phi.unit_keys, tensors};
    }
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
    return RuntimeMixer::bytes() + decay_up_.bytes() + gate_up_.bytes() +
           query_map_.bytes() + key_map_.bytes();
  }
  int64_t row_floats() const override { return at_.extra_width; }

  // The parts before and after the recurrence treat each row separately; the
  // recurrence is a task for each sequence and key head, or value head where
  // those are too few for all workers (Mamba-2 has one key head).
  void Mix(MixerBlock& block, int64_t layer) const override {
    MakeGates(block);
    Convolve(block, layer);
    const int64_t products = s_.phi.has_matrix() ? s_.keys * s_.d_key / 4 : 0;
    block.ForRows(8 * (s_.channels + s_.gates) + products, [&](int64_t row) {
      PrepareKeys(block, row, 0, s_.key_heads);
      PrepareHeads(block, row, 0, s_.heads);
    });
    const int64_t segments = static_cast<int64_t>(block.segments.size());
    const int64_t parts = segments * s_.key_heads >= 8 * block.workers()
                              ? s_.key_heads
                              : s_.heads;
    const int64_t count = s_.heads / parts;
    // About four state entries a nanosecond.
    const int64_t ns = count * s_.d_feature * s_.d_sum / 4 + 200;
    block.ForTasks(
        segments * parts, ns * ((block.rows() + segments - 1) / segments),
        [&](int64_t task, int) {
          Advance(block, block.segments[static_cast<size_t>(task / parts)],
                  layer, task % parts * count, count);
        });
    block.ForRows(8 * s_.values, [&](int64_t row) {
      AddSkip(block, row, 0, s_.heads);
      Finish(block, row, 0, s_.heads);
    });
  }

  // The second halves of projections of low rank; what heads of keys and of
  // values need before the recurrence; the recurrence of each value head; the
  // norm over several heads. Where each value head has its own keys, or key
  // heads are many, all is done head by head.
  int phases() const override { return Number(StepPart::kEnd); }
  int64_t units(int phase) const override {
    switch (PartOf(phase)) {
      case StepPart::kGates:
        return PanelUnits({&decay_up_, &gate_up_});
      case StepPart::kPrepare:
        return s_.key_heads + s_.heads;
      case StepPart::kAdvance:
        return together() ? s_.key_heads : s_.heads;
      case StepPart::kFinish:
      case StepPart::kEnd:
        break;
    }
    return s_.norm_groups;
  }
  void Step(MixerBlock& block, const StepShare& share) const override {
    switch (PartOf(share.phase)) {
      case StepPart::kGates:
        RunProducts(
            {GateProduct(block, decay_up_, at_.decay_down, at_.gates),
             GateProduct(block, gate_up_, at_.gate_down, at_.made_gate)},
            share);
        return;
      case StepPart::kPrepare: {
        const int64_t keys = std::min(share.end, s_.key_heads) - share.begin;
        const int64_t first = std::max(share.begin - s_.key_heads, int64_t{0});
        const int64_t heads = share.end - s_.key_heads - first;
        if (keys > 0) ConvolveKeys(block, share.layer, share.begin, keys);
        if (heads > 0) ConvolveHeads(block, share.layer, first, heads);
        return;
      }
      case StepPart::kAdvance:
        StepHeads(block, share);
        return;
      case StepPart::kFinish:
      case StepPart::kEnd:
        for (int64_t row = 0; row < block.rows(); ++row) {
          Finish(block, row, share.begin * NormHeads(),
                 (share.end - share.begin) * NormHeads());
        }
    }
  }
  const void* Reads(const MixerBlock& block, int64_t layer, int phase,
                    int64_t unit) const override {
    const StepPart part = PartOf(phase);
    if (part == StepPart::kGates) {
      return PanelAt({&decay_up_, &gate_up_}, unit);
    }
    if (part != StepPart::kAdvance) return nullptr;
    return block.segments.front().state->Tensor(layer, kS) +
           unit * (together() ? s_.heads / s_.key_heads : 1) * s_.d_feature *
               s_.d_sum;
  }

 private:
  enum class StepPart { kGates, kPrepare, kAdvance, kFinish, kEnd };

  // Whether a head's part of a step runs from the convolution to the output.
  bool together() const {
    return s_.key_heads == s_.heads || s_.key_heads >= kManyKeyHeads;
  }
  // Value heads that are normalised together.
  int64_t NormHeads() const { return s_.heads / s_.norm_groups; }
  bool Has(StepPart part) const {
    switch (part) {
      case StepPart::kGates:
        return form_.low_rank() || form_.low_rank_output_gate;
      case StepPart::kPrepare:
        return !together();
      case StepPart::kFinish:
        return !FinishesByHead();
      default:
        return true;
    }
  }
  // Whether a share of the recurrence holds all heads of each norm.
  bool FinishesByHead() const {
    if (!form_.norm || NormHeads() == 1) return true;
    return together() && s_.heads / s_.key_heads % NormHeads() == 0;
  }
  // The phases before a part.
  int Number(StepPart part) const {
    int number = 0;
    for (int before = 0; before < static_cast<int>(part); ++before) {
      number += Has(static_cast<StepPart>(before)) ? 1 : 0;
    }
    return number;
  }
  StepPart PartOf(int phase) const {
    int part = 0;
    while (!Has(static_cast<StepPart>(part)) ||
           Number(static_cast<StepPart>(part)) < phase) {
      ++part;
    }
    return static_cast<StepPart>(part);
  }

  // The recurrence of a share's heads, with what they need before and after it
  // where nothing else makes it.
  void StepHeads(MixerBlock& block, const StepShare& share) const {
    const int64_t each = together() ? s_.heads / s_.key_heads : 1;
    const int64_t first = share.begin * each;
    const int64_t count = (share.end - share.begin) * each;
    if (together()) {
      ConvolveKeys(block, share.layer, share.begin, share.end - share.begin);
      ConvolveHeads(block, share.layer, first, count);
    }
    const int64_t group = s_.heads / s_.key_heads;
    for (int64_t done = 0; done < count;) {
      const int64_t head = first + done, rest = count - done;
      const int64_t heads =
          together() ? rest : std::min(rest, group - head % group);
      for (const Segment& segment : block.segments) {
        Advance(block, segment, share.layer, head, heads);
      }
      done += heads;
    }
    for (int64_t row = 0; row < block.rows(); ++row) {
      AddSkip(block, row, first, count);
      if (FinishesByHead()) Finish(block, row, first, count);
    }
  }

  // Queries and keys of `count` key heads in a step.
  void ConvolveKeys(MixerBlock& block, int64_t layer, int64_t first,
                    int64_t count) const {
    ConvolveColumns(block, layer, first * s_.d_key, count * s_.d_key);
    ConvolveColumns(block, layer, s_.keys + first * s_.d_key, count * s_.d_key);
    for (int64_t row = 0; row < block.rows(); ++row) {
      PrepareKeys(block, row, first, count);
    }
  }
  // Values and gates of `count` value heads.
  void ConvolveHeads(MixerBlock& block, int64_t layer, int64_t first,
                     int64_t count) const {
    ConvolveColumns(block, layer, 2 * s_.keys + first * s_.d_value,
                    count * s_.d_value);
    for (int64_t row = 0; row < block.rows(); ++row) {
      PrepareHeads(block, row, first, count);
    }
  }
  void ConvolveColumns(MixerBlock& block, int64_t layer, int64_t begin,
                       int64_t count) const {
    if (s_.width == 0) return;
    convolution_.Step(block, layer, kWindow, Columns(block.in, at_.query),
                      Columns(block.extra, at_.convolved), {begin, count});
  }

  // Queries, keys and values as the recurrence reads them.
  Rows Queries(const MixerBlock& block) const {
    if (form_.mapped) return Columns(block.extra, at_.query_features);
    return s_.width > 0 ? Columns(block.extra, at_.convolved)
                        : Columns(block.in, at_.query);
  }
  Rows Keys(const MixerBlock& block) const {
    if (form_.bounded()) return Columns(block.extra, at_.made_keys);
    if (form_.mapped) return Columns(block.extra, at_.key_features);
    return s_.width > 0 ? Columns(block.extra, at_.convolved + s_.keys)
                        : Columns(block.in, at_.key);
  }
  Rows Convolved(const MixerBlock& block) const {
    return s_.width > 0 ? Columns(block.extra, at_.convolved + 2 * s_.keys)
                        : Columns(block.in, at_.value);
  }
  Rows Values(const MixerBlock& block) const {
    if (s_.phi.divided) return Columns(block.extra, at_.counted_values);
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
  // One of them in a step.
  static StepProduct GateProduct(const MixerBlock& block, const WeightMatrix& w,
                                 int64_t from, int64_t to) {
    return {.w = &w, .x = block.in.Columns(from), .y = block.extra.Columns(to)};
  }

  void Convolve(MixerBlock& block, int64_t layer) const {
    if (s_.width == 0) return;
    convolution_.Run(block, layer, kWindow, Columns(block.in, at_.query),
                     Columns(block.extra, at_.convolved));
  }

  // Queries and keys of `count` key heads as the recurrence reads them, in
  // place. Bounded gates make the keys with the heads.
  void PrepareKeys(const MixerBlock& block, int64_t row, int64_t first,
                   int64_t count) const {
    const int64_t column = first * s_.d_key, width = count * s_.d_key;
    float* in = block.in[row];
    if (s_.width == 0) {
      const bool convolved = form_.convolution;  // of width 0: silu alone
      if (convolved || form_.silu_queries) {
        Silu(in + at_.query + column, width);
      }
      if ((convolved || form_.silu_keys_values) && !form_.bounded()) {
        Silu(in + at_.key + column, width);
      }
    }
    if (rotary_) {
      const float *cos = block.places[row], *sin = cos + s_.d_key / 2;
      RotateRow(cos, sin, count, s_.d_key, in + at_.query + column);
      RotateRow(cos, sin, count, s_.d_key, in + at_.key + column);
    }
    if (form_.unit) {
      UnitRow(count, s_.d_key, kUnitEps, Queries(block)[row] + column);
      UnitRow(count, s_.d_key, kUnitEps, Keys(block)[row] + column);
    }
    if (form_.mapped) {
      float* scratch = s_.phi.has_factor()
                           ? block.extra[row] + at_.factors + column
                           : nullptr;
      const int64_t feature = first * s_.d_feature;
      query_map_.Run(in + at_.query + column, count, scratch,
                     Queries(block)[row] + feature);
      key_map_.Run(in + at_.key + column, count, scratch,
                   Keys(block)[row] + feature);
    }
  }

  // Values, betas and gates of `count` value heads.
  void PrepareHeads(const MixerBlock& block, int64_t row, int64_t first,
                    int64_t count) const {
    float* in = block.in[row];
    if (s_.width == 0 && (form_.convolution || form_.silu_keys_values)) {
      Silu(in + at_.value + first * s_.d_value, count * s_.d_value);
    }
    if (form_.delta) {
      float* betas = in + at_.beta + first;
      SigmoidRow(betas, count, betas);
      for (int64_t h = 0; h < count; ++h) betas[h] *= beta_scale_;
    }
    if (form_.projected()) Decay(block, row, first, count);
    if (s_.phi.divided) CountValues(block, row, first, count);
  }

  // Puts a 1 after the values of each head: its sum is that of the keys.
  void CountValues(const MixerBlock& block, int64_t row, int64_t first,
                   int64_t count) const {
    for (int64_t head = first; head < first + count; ++head) {
      float* to = Values(block)[row] + head * s_.d_sum;
      std::copy_n(Convolved(block)[row] + head * s_.d_value, s_.d_value, to);
      to[s_.d_value] = 1.0f;
    }
  }

  // The values of `count` heads over that sum.
  void DivideSums(const MixerBlock& block, int64_t row, int64_t first,
                  int64_t count) const {
    for (int64_t head = first; head < first + count; ++head) {
      const float* sums = block.extra[row] + at_.sums + head * s_.d_sum;
      const float divisor = sums[s_.d_value] + kDivisorEps;
      float* out = block.out[row] + head * s_.d_value;
      for (int64_t i = 0; i < s_.d_value; ++i) out[i] = sums[i] / divisor;
    }
  }

  static void Silu(float* x, int64_t count) { SiluRow(x, count, x); }

  // The gates of `count` value heads.
  void Decay(const MixerBlock& block, int64_t row, int64_t first,
             int64_t count) const {
    const int64_t each = s_.gates / s_.heads, column = first * each;
    GateRow own = gates_;
    own.count = count * each;
    if (own.rates != nullptr) own.rates += column;
    if (own.bias != nullptr) own.bias += column;
    float* gates = block.extra[row] + at_.gates + column;
    if (form_.skip) return DecayWithSteps(block, row, own, first, gates);
    const float* x =
        form_.low_rank() ? gates : block.in[row] + at_.decay + column;
    DecayGateRow(own, x, gates,
                 form_.bounded() ? Keys(block)[row] + column : nullptr);
  }

  // The gates, and v = dt x with their steps dt, a head. The steps stand where
  // the gates will, which are made in place of their projection.
  void DecayWithSteps(const MixerBlock& block, int64_t row, const GateRow& own,
                      int64_t first, float* gates) const {
    const int64_t column = first * s_.d_value;
    float* projected = block.in[row] + at_.decay + first;
    DecayGateRow(own, projected, projected, gates);
    HeadScaleRow(own.count, s_.d_value, Convolved(block)[row] + column, gates,
                 /*base=*/nullptr, Values(block)[row] + column);
    std::copy_n(projected, own.count, gates);
  }

  // The rows of a segment over the states of `count` value heads, which read
  // whole key heads or parts of one.
  void Advance(const MixerBlock& block, const Segment& segment, int64_t layer,
               int64_t first, int64_t count) const {
    const int64_t group = s_.heads / s_.key_heads, key_head = first / group;
    const int64_t key_heads = std::max<int64_t>(count / group, 1);
    RecurrentInputs in;
    in.queries = View(Columns(Queries(block), key_head * s_.d_feature), segment,
                      key_heads, s_.d_feature);
    in.keys = View(Columns(Keys(block), key_head * s_.d_feature), segment,
                   key_heads, s_.d_feature);
    in.values = View(Columns(Values(block), first * s_.d_sum), segment, count,
                     s_.d_sum);
    if (form_.constant()) in.head_gates = v_.log_decay.data() + first;
    if (form_.projected()) {
      const int64_t width = s_.gates / s_.heads;
      in.gates = View(Columns(block.extra, at_.gates + first * width), segment,
                      count, width);
    }
    if (form_.delta) {
      in.betas = View(Columns(block.in, at_.beta + first), segment, count, 1);
    }
    float* state =
        segment.state->Tensor(layer, kS) + first * s_.d_feature * s_.d_sum;
    const RecurrentState states = {.state = state, .next = state};
    const Rows to = s_.phi.divided ? Columns(block.extra, at_.sums) : block.out;
    const TensorView out =
        View(Columns(to, first * s_.d_sum), segment, count, s_.d_sum);
    SerialExecutor serial;
    const RecurrentOptions options = {.scale = s_.scale};
    if (form_.delta) {
      DeltaAttentionStep(options, in, states, out, serial);
    } else {
      DecayAttentionStep(options, in, states, out, serial);
    }
    if (!s_.phi.divided) return;
    for (int64_t i = 0; i < segment.count; ++i) {
      DivideSums(block, segment.row + i, first, count);
    }
  }

  // o + D x of `count` value heads.
  void AddSkip(const MixerBlock& block, int64_t row, int64_t first,
               int64_t count) const {
    if (!form_.skip) return;
    const int64_t column = first * s_.d_value;
    float* out = block.out[row] + column;
    HeadScaleRow(count, s_.d_value, Convolved(block)[row] + column,
                 v_.skip.data() + first, out, out);
  }

  // The output norm and gate of `count` value heads, whole groups, in place;
  // only a gate of silu is without a norm.
  void Finish(const MixerBlock& block, int64_t row, int64_t first,
              int64_t count) const {
    const int64_t column = first * s_.d_value;
    float* out = block.out[row] + column;
    const float* gate = OutputGateRow(block, row);
    if (gate != nullptr) gate += column;
    if (!form_.norm) {
      SerialExecutor serial;
      SwigluForward({}, 1, count * s_.d_value, gate, out, out, serial);
      return;
    }
    GatedNormOptions norm = norm_;
    norm.groups = count * s_.d_value / s_.norm_width;
    GatedNormRow(norm, out, gate,
                 v_.norm.data() + (s_.shared_norm ? 0 : column),
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
  RuntimeFeatures query_map_, key_map_;  // where the form is mapped
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
