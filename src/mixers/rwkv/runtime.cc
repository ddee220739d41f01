#include "mixers/rwkv/runtime.h"

#include <algorithm>

#include "kernels/activation/activation.h"
#include "kernels/decay/decay_attention.h"
#include "kernels/decay_gate/decay_gate.h"
#include "kernels/dplr/dplr_attention.h"
#include "kernels/entry_forms/entry_forms.h"
#include "kernels/gate_correction/gate_correction.h"
#include "kernels/gate_rows/gate_rows.h"
#include "kernels/token_shift/token_shift.h"
#include "kernels/unit_norm/unit_norm.h"
#include "mixers/rwkv/runtime_token_shift.h"

namespace tarn::mixers {
namespace {

class Seven final : public TokenShift {
 public:
  Seven(const ModelConfig& layer, MixerTensors& tensors)
      : TokenShift(layer, tensors),
        key_scale_(tensors.Vector("key_scale")),
        key_rate_(tensors.Vector("key_rate")) {
    const int64_t d = s_.d_model, w = s_.width;
    const auto matrix = [&](const char* name, int64_t rows, int64_t inputs,
                            bool bias = false) {
      return Matrix(tensors, name, rows, inputs, bias);
    };
    w_query_ = matrix("query_projection", w, d);
    w_key_ = matrix("key_projection", w, d);
    w_value_ = matrix("value_projection", w, d);
    decay_down_w_ = matrix("decay_down_projection", s_.rank, d);
    decay_up_ = matrix("decay_up_projection", w, s_.rank, true);
    rate_down_w_ = matrix("rate_down_projection", s_.rate_rank, d);
    rate_up_ = matrix("rate_up_projection", w, s_.rate_rank, true);
    gate_down_w_ = matrix("gate_down_projection", s_.gate_rank, d);
    gate_up_ = matrix("gate_up_projection", w, s_.gate_rank);
    if (s_.reads_values) {
      value_down_w_ = matrix("value_down_projection", s_.value_rank, d);
      value_up_ = matrix("value_up_projection", w, s_.value_rank, true);
      value_down_ = Keep(s_.value_rank);
      share_ = Keep(w);
    }
    rate_down_ = Keep(s_.rate_rank);
    gate_down_ = Keep(s_.gate_rank);
    rate_ = Keep(w);  // a, then what is written: c a
    reads_ = Keep(w);
    gate_ = Keep(w);
    decay_ = {.form = GateForm::kSigmoid,
              .count = w,
              .scale = static_cast<float>(kRwkvDecay)};
  }

 protected:
  void Shift(MixerBlock& block, int64_t layer) const override {
    const int64_t d = s_.d_model;
    block.ForRows(s_.inputs * d, [&](int64_t row) {
      const float* y = block.in[row];
      const float* before = Before(block, row, layer);
      for (int64_t n = 0; n < s_.inputs; ++n) {
        ShiftedRow(y, before, shift_.data() + n * d, d,
                   block.extra[row] + mixed_ + n * d);
      }
    });
  }

  void Project(MixerBlock& block) const override {
    const int64_t d = s_.d_model;
    Multiply(block, w_query_, mixed_ + kShiftQuery * d, query_);
    Multiply(block, w_key_, mixed_ + kShiftKey * d, key_);
    Multiply(block, w_value_, mixed_ + kShiftValue * d, value_);
    ShareValues(block);
    Multiply(block, decay_down_w_, mixed_ + kShiftDecay * d, decay_down_);
    Multiply(block, rate_down_w_, mixed_ + kShiftRate * d, rate_down_);
    Multiply(block, gate_down_w_, mixed_ + kShiftGate * d, gate_down_);
    block.ForRows(4 * (s_.rank + s_.gate_rank), [&](int64_t row) {
      float* extra = block.extra[row];
      TanhRow(extra + decay_down_, s_.rank, extra + decay_down_);
      SigmoidRow(extra + gate_down_, s_.gate_rank, extra + gate_down_);
    });
    Multiply(block, decay_up_, decay_down_, gates_);
    Multiply(block, rate_up_, rate_down_, rate_);
    Multiply(block, gate_up_, gate_down_, gate_);
    block.ForRows(16 * s_.width, [&](int64_t row) { Prepare(block, row); });
  }

  void Advance(const MixerBlock& block, const Segment& segment, int64_t head,
               float* state) const override {
    const auto view = [&](int64_t column) {
      return View(block, segment, column + head * s_.d_key, s_.d_key);
    };
    RecurrentInputs in;
    in.queries = view(query_);
    in.keys = view(key_);
    in.values = view(value_);
    in.gates = view(gates_);
    in.reads = view(reads_);
    in.writes = view(rate_);
    SerialExecutor serial;
    DplrAttentionStep({}, in, {.state = state, .next = state},
                      OutView(block, segment, head), serial);
  }

  void Finish(const MixerBlock& block, int64_t row) const override {
    const float* extra = block.extra[row];
    float* out = block.out[row];
    GatedNormRow(norm_, out, /*gate=*/nullptr, norm_weight_.data(),
                 norm_bias_.data(), out);
    const GateCorrectionInputs in = {.tokens = 1,
                                     .heads = s_.heads,
                                     .width = s_.d_key,
                                     .o = out,
                                     .r = extra + query_,
                                     .k = extra + key_,
                                     .v = extra + value_,
                                     .g = extra + gate_,
                                     .weight = bonus_.data()};
    SerialExecutor serial;
    GateCorrectionForward(in, out, serial);
  }

  int64_t passed_width() const override {
    return s_.passes_values ? s_.width : 0;
  }

 private:
  // The values of the first layer go to the later ones, which add a share.
  void ShareValues(MixerBlock& block) const {
    if (!s_.passes_values) return;
    if (s_.reads_values) {
      Multiply(block, value_down_w_, mixed_ + kShiftValue * s_.d_model,
               value_down_);
      Multiply(block, value_up_, value_down_, share_);
    }
    block.ForRows(4 * s_.width, [&](int64_t row) {
      float* values = block.extra[row] + value_;
      float* first = block.passed[row];
      if (!s_.reads_values) {
        std::copy_n(values, s_.width, first);
        return;
      }
      float* share = block.extra[row] + share_;
      SigmoidRow(share, s_.width, share);
      ShiftedRow(values, first, share, s_.width, values);
    });
  }

  void Prepare(const MixerBlock& block, int64_t row) const {
    float* extra = block.extra[row];
    float *gates = extra + gates_, *rate = extra + rate_, *key = extra + key_,
          *reads = extra + reads_;
    DecayGateRow(decay_, gates, gates, nullptr);
    SigmoidRow(rate, s_.width, rate);
    for (int64_t i = 0; i < s_.width; ++i) {
      reads[i] = -key[i] * key_scale_[static_cast<size_t>(i)];
    }
    const EntryFormCall mixed = {.form = EntryForm::kMixedGate,
                                 .rows = 1,
                                 .width = s_.width,
                                 .x = {key, s_.width},
                                 .y = {rate, s_.width},
                                 .weight = key_rate_.data()};
    SerialExecutor serial;
    EntryFormForward(mixed, mixed.x, serial);
    UnitRow(s_.heads, s_.d_key, s_.unit_eps, reads);
    for (int64_t i = 0; i < s_.width; ++i) rate[i] *= -reads[i];
  }

  const std::vector<float> key_scale_, key_rate_;  // [H K]
  WeightMatrix w_query_, w_key_, w_value_, decay_down_w_, decay_up_;
  WeightMatrix rate_down_w_, rate_up_, gate_down_w_, gate_up_;
  WeightMatrix value_down_w_, value_up_;
  GateRow decay_;
  int64_t value_down_ = -1, share_ = -1;
  int64_t rate_down_ = -1, gate_down_ = -1, rate_ = -1, reads_ = -1, gate_ = -1;
};

class Six final : public TokenShift {
 public:
  Six(const ModelConfig& layer, MixerTensors& tensors)
      : TokenShift(layer, tensors), base_(tensors.Vector("shift_base")) {
    const int64_t d = s_.d_model, w = s_.width;
    const auto matrix = [&](const char* name, int64_t rows, int64_t inputs,
                            bool bias = false) {
      return Matrix(tensors, name, rows, inputs, bias);
    };
    shift_down_w_ =
        matrix("shift_down_projection", s_.inputs * s_.shift_rank, d);
    shift_up_ = Matrices(tensors, "shift_up_projection.weight", s_.inputs, d,
                         s_.shift_rank);
    w_query_ = matrix("query_projection", w, d);
    w_key_ = matrix("key_projection", w, d);
    w_value_ = matrix("value_projection", w, d);
    decay_down_w_ = matrix("decay_down_projection", s_.rank, d);
    decay_up_ = matrix("decay_up_projection", w, s_.rank, true);
    w_gate_ = matrix("gate_projection", w, d);
    shift_down_ = Keep(s_.inputs * s_.shift_rank);
    gate_ = Keep(w);
    decay_ = {.form = GateForm::kExponential, .count = w};
  }

 protected:
  // The shifts depend on a first mixture of the two rows.
  void Shift(MixerBlock& block, int64_t layer) const override {
    const int64_t d = s_.d_model, rank = s_.shift_rank;
    block.ForRows(d, [&](int64_t row) {
      ShiftedRow(block.in[row], Before(block, row, layer), base_.data(), d,
                 block.extra[row] + mixed_);
    });
    Multiply(block, shift_down_w_, mixed_, shift_down_);
    block.ForRows(4 * s_.inputs * rank, [&](int64_t row) {
      float* down = block.extra[row] + shift_down_;
      TanhRow(down, s_.inputs * rank, down);
    });
    for (int64_t n = 0; n < s_.inputs; ++n) {
      Multiply(block, shift_up_[static_cast<size_t>(n)], shift_down_ + n * rank,
               mixed_ + n * d);
    }
    block.ForRows(2 * s_.inputs * d, [&](int64_t row) {
      const float* y = block.in[row];
      const float* before = Before(block, row, layer);
      float* mixed = block.extra[row] + mixed_;  // shifts first
      AddToRow(shift_.data(), s_.inputs * d, mixed);
      for (int64_t n = 0; n < s_.inputs; ++n, mixed += d) {
        ShiftedRow(y, before, mixed, d, mixed);
      }
    });
  }

  void Project(MixerBlock& block) const override {
    const int64_t d = s_.d_model;
    Multiply(block, w_query_, mixed_ + kShiftQuery * d, query_);
    Multiply(block, w_key_, mixed_ + kShiftKey * d, key_);
    Multiply(block, w_value_, mixed_ + kShiftValue * d, value_);
    Multiply(block, decay_down_w_, mixed_ + kShiftDecay * d, decay_down_);
    Multiply(block, w_gate_, mixed_ + kShiftGate * d, gate_);
    block.ForRows(4 * s_.rank, [&](int64_t row) {
      float* down = block.extra[row] + decay_down_;
      TanhRow(down, s_.rank, down);
    });
    Multiply(block, decay_up_, decay_down_, gates_);
    block.ForRows(8 * s_.width, [&](int64_t row) {
      float* gates = block.extra[row] + gates_;
      DecayGateRow(decay_, gates, gates, nullptr);
    });
  }

  void Advance(const MixerBlock& block, const Segment& segment, int64_t head,
               float* state) const override {
    const auto view = [&](int64_t column) {
      return View(block, segment, column + head * s_.d_key, s_.d_key);
    };
    RecurrentInputs in;
    in.queries = view(query_);
    in.keys = view(key_);
    in.values = view(value_);
    in.gates = view(gates_);
    in.bonus = bonus_.data() + head * s_.d_key;
    SerialExecutor serial;
    DecayAttentionStep({}, in, {.state = state, .next = state},
                       OutView(block, segment, head), serial);
  }

  void Finish(const MixerBlock& block, int64_t row) const override {
    float* out = block.out[row];
    GatedNormRow(norm_, out, block.extra[row] + gate_, norm_weight_.data(),
                 norm_bias_.data(), out);
  }

 private:
  const std::vector<float> base_;       // shift_base [D]
  std::vector<WeightMatrix> shift_up_;  // [inputs] of [D, rank]
  WeightMatrix shift_down_w_, w_query_, w_key_, w_value_, w_gate_;
  WeightMatrix decay_down_w_, decay_up_;
  GateRow decay_;
  int64_t shift_down_ = -1, gate_ = -1;
};

std::unique_ptr<RuntimeMixer> MakeSix(const ModelConfig& layer,
                                      MixerTensors& tensors) {
  return std::make_unique<Six>(layer, tensors);
}

std::unique_ptr<RuntimeMixer> MakeSeven(const ModelConfig& layer,
                                        MixerTensors& tensors) {
  return std::make_unique<Seven>(layer, tensors);
}

}  // namespace

std::vector<RuntimeMixerRow> rwkv::RuntimeMixers() {
  return {{"rwkv6", nullptr, MakeSix}, {"rwkv7", nullptr, MakeSeven}};
}

}  // namespace tarn::mixers
