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

  // Mixtures; the products that read them; those of the second halves of
  // projections of low rank; heads.
  int phases() const override { return 4; }
  int64_t units(int phase) const override {
    if (phase == 0) return ColumnUnits(s_.d_model, kShare);
    if (phase == 1) {
      return PanelUnits({&w_query_, &w_key_, &w_value_, &decay_down_w_,
                         &rate_down_w_, &gate_down_w_, &value_down_w_});
    }
    if (phase == 2) {
      return PanelUnits({&decay_up_, &rate_up_, &gate_up_, &value_up_});
    }
    return s_.heads;
  }
  void Step(MixerBlock& block, const StepShare& share) const override {
    switch (share.phase) {
      case 0:
        for (int64_t row = 0; row < block.rows(); ++row) {
          Mixtures(block, row, share.layer,
                   ColumnsOf(s_.d_model, kShare, share));
        }
        return;
      case 1:
        FirstProducts(block, share);
        return;
      case 2:
        RunProducts({Product(block, decay_up_, decay_down_, gates_),
                     Product(block, rate_up_, rate_down_, rate_),
                     Product(block, gate_up_, gate_down_, gate_),
                     Product(block, value_up_, value_down_, share_)},
                    share);
        return;
      default:
        StepHeads(block, share, [&](int64_t row, int64_t first, int64_t count) {
          const StepColumns own = {first * s_.d_key, count * s_.d_key};
          if (s_.passes_values) ShareRow(block, row, own);
          Prepare(block, row, own);
        });
    }
  }
  const void* Reads(const MixerBlock& block, int64_t layer, int phase,
                    int64_t unit) const override {
    switch (phase) {
      case 0:
        return nullptr;
      case 1:
        return PanelAt({&w_query_, &w_key_, &w_value_, &decay_down_w_,
                        &rate_down_w_, &gate_down_w_, &value_down_w_},
                       unit);
      case 2:
        return PanelAt({&decay_up_, &rate_up_, &gate_up_, &value_up_}, unit);
      default:
        return State(block.segments.front(), layer, unit);
    }
  }

 protected:
  void Shift(MixerBlock& block, int64_t layer) const override {
    block.ForRows(s_.inputs * s_.d_model, [&](int64_t row) {
      Mixtures(block, row, layer, {0, s_.d_model});
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
    block.ForRows(16 * s_.width, [&](int64_t row) {
      Prepare(block, row, {0, s_.width});
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
    in.reads = view(reads_);
    in.writes = view(rate_);
    SerialExecutor serial;
    DplrAttentionStep({}, in, {.state = state, .next = state},
                      OutView(block, segment, head), serial);
  }

  void Finish(const MixerBlock& block, int64_t row, int64_t first,
              int64_t count) const override {
    const int64_t column = first * s_.d_key;
    const float* extra = block.extra[row] + column;
    float* out = block.out[row] + column;
    NormHeads(first, count, /*gate=*/nullptr, out);
    const GateCorrectionInputs in = {.tokens = 1,
                                     .heads = count,
                                     .width = s_.d_key,
                                     .o = out,
                                     .r = extra + query_,
                                     .k = extra + key_,
                                     .v = extra + value_,
                                     .g = extra + gate_,
                                     .weight = bonus_.data() + column};
    SerialExecutor serial;
    GateCorrectionForward(in, out, serial);
  }

  int64_t passed_width() const override {
    return s_.passes_values ? s_.width : 0;
  }

 private:
  // Some columns of every mixture of a row.
  void Mixtures(const MixerBlock& block, int64_t row, int64_t layer,
                StepColumns own) const {
    const int64_t d = s_.d_model;
    const float* y = block.in[row] + own.begin;
    const float* before = Before(block, row, layer) + own.begin;
    for (int64_t n = 0; n < s_.inputs; ++n) {
      const int64_t column = n * d + own.begin;
      ShiftedRow(y, before, shift_.data() + column, own.count,
                 block.extra[row] + mixed_ + column);
    }
  }

  // The products of the mixtures in a step, after which the row is kept.
  void FirstProducts(MixerBlock& block, const StepShare& share) const {
    const int64_t d = s_.d_model;
    RunProducts(
        {Product(block, w_query_, mixed_ + kShiftQuery * d, query_),
         Product(block, w_key_, mixed_ + kShiftKey * d, key_),
         Product(block, w_value_, mixed_ + kShiftValue * d, value_),
         Product(block, decay_down_w_, mixed_ + kShiftDecay * d, decay_down_),
         Product(block, rate_down_w_, mixed_ + kShiftRate * d, rate_down_),
         Product(block, gate_down_w_, mixed_ + kShiftGate * d, gate_down_),
         Product(block, value_down_w_, mixed_ + kShiftValue * d, value_down_)},
        share);
    int64_t panels = PanelUnits({&w_query_, &w_key_, &w_value_});
    const StepColumns decay = ColumnsOfPanels(decay_down_w_, share, panels);
    panels += PanelUnits({&decay_down_w_, &rate_down_w_});
    const StepColumns gate = ColumnsOfPanels(gate_down_w_, share, panels);
    for (int64_t row = 0; row < block.rows(); ++row) {
      float* x = block.extra[row] + decay_down_ + decay.begin;
      TanhRow(x, decay.count, x);
      x = block.extra[row] + gate_down_ + gate.begin;
      SigmoidRow(x, gate.count, x);
    }
    if (share.begin == 0) block.KeepLastRows(block.in, share.layer, kShift);
  }

  // The values of the first layer go to the later ones, which add a share.
  void ShareValues(MixerBlock& block) const {
    if (!s_.passes_values) return;
    if (s_.reads_values) {
      Multiply(block, value_down_w_, mixed_ + kShiftValue * s_.d_model,
               value_down_);
      Multiply(block, value_up_, value_down_, share_);
    }
    block.ForRows(4 * s_.width, [&](int64_t row) {
      ShareRow(block, row, {0, s_.width});
    });
  }

  void ShareRow(const MixerBlock& block, int64_t row, StepColumns own) const {
    float* values = block.extra[row] + value_ + own.begin;
    float* first = block.passed[row] + own.begin;
    if (!s_.reads_values) {
      std::copy_n(values, own.count, first);
      return;
    }
    float* share = block.extra[row] + share_ + own.begin;
    SigmoidRow(share, own.count, share);
    ShiftedRow(values, first, share, own.count, values);
  }

  // What the recurrence of some heads reads, from their columns.
  void Prepare(const MixerBlock& block, int64_t row, StepColumns own) const {
    float* extra = block.extra[row] + own.begin;
    float *gates = extra + gates_, *rate = extra + rate_, *key = extra + key_,
          *reads = extra + reads_;
    GateRow decay = decay_;
    decay.count = own.count;
    DecayGateRow(decay, gates, gates, nullptr);
    SigmoidRow(rate, own.count, rate);
    const float* scale = key_scale_.data() + own.begin;
    for (int64_t i = 0; i < own.count; ++i) reads[i] = -key[i] * scale[i];
    const EntryFormCall mixed = {.form = EntryForm::kMixedGate,
                                 .rows = 1,
                                 .width = own.count,
                                 .x = {key, own.count},
                                 .y = {rate, own.count},
                                 .weight = key_rate_.data() + own.begin};
    SerialExecutor serial;
    EntryFormForward(mixed, mixed.x, serial);
    UnitRow(own.count / s_.d_key, s_.d_key, s_.unit_eps, reads);
    for (int64_t i = 0; i < own.count; ++i) rate[i] *= -reads[i];
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

  // The first mixture; the two products that make the others of it; those of
  // the others; that of the decay; heads.
  int phases() const override { return 6; }
  int64_t units(int phase) const override {
    switch (phase) {
      case 0:
        return ColumnUnits(s_.d_model, kShare);
      case 1:
        return PanelUnits({&shift_down_w_});
      case 2:
        return s_.inputs * shift_up_.front().panels();
      case 3:
        return PanelUnits(
            {&w_query_, &w_key_, &w_value_, &w_gate_, &decay_down_w_});
      case 4:
        return PanelUnits({&decay_up_});
      default:
        return s_.heads;
    }
  }
  void Step(MixerBlock& block, const StepShare& share) const override {
    const int64_t rows = block.rows();
    switch (share.phase) {
      case 0:
        for (int64_t row = 0; row < rows; ++row) {
          FirstMixture(block, row, share.layer,
                       ColumnsOf(s_.d_model, kShare, share));
        }
        return;
      case 1: {
        RunProducts({Product(block, shift_down_w_, mixed_, shift_down_)},
                    share);
        const StepColumns own = ColumnsOfPanels(shift_down_w_, share);
        for (int64_t row = 0; row < rows; ++row) {
          float* down = block.extra[row] + shift_down_ + own.begin;
          TanhRow(down, own.count, down);
        }
        return;
      }
      case 2:
        StepMixtures(block, share);
        return;
      case 3:
        FirstProducts(block, share);
        return;
      case 4: {
        RunProducts({Product(block, decay_up_, decay_down_, gates_)}, share);
        for (int64_t row = 0; row < rows; ++row) {
          MakeGates(block, row, ColumnsOfPanels(decay_up_, share));
        }
        return;
      }
      default:
        StepHeads(block, share, [](int64_t, int64_t, int64_t) {});
    }
  }
  const void* Reads(const MixerBlock& block, int64_t layer, int phase,
                    int64_t unit) const override {
    switch (phase) {
      case 0:
        return nullptr;
      case 1:
        return shift_down_w_.Panel(unit);
      case 2: {
        const int64_t each = shift_up_.front().panels();
        return shift_up_[static_cast<size_t>(unit / each)].Panel(unit % each);
      }
      case 3:
        return PanelAt(
            {&w_query_, &w_key_, &w_value_, &w_gate_, &decay_down_w_}, unit);
      case 4:
        return decay_up_.Panel(unit);
      default:
        return State(block.segments.front(), layer, unit);
    }
  }

 protected:
  // The shifts depend on a first mixture of the two rows.
  void Shift(MixerBlock& block, int64_t layer) const override {
    const int64_t d = s_.d_model, rank = s_.shift_rank;
    block.ForRows(d, [&](int64_t row) {
      FirstMixture(block, row, layer, {0, d});
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
      for (int64_t n = 0; n < s_.inputs; ++n) {
        MixtureOfShift(block, row, layer, n, {0, d});
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
      MakeGates(block, row, {0, s_.width});
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

  void Finish(const MixerBlock& block, int64_t row, int64_t first,
              int64_t count) const override {
    const int64_t column = first * s_.d_key;
    NormHeads(first, count, block.extra[row] + gate_ + column,
              block.out[row] + column);
  }

 private:
  void FirstMixture(const MixerBlock& block, int64_t row, int64_t layer,
                    StepColumns own) const {
    ShiftedRow(block.in[row] + own.begin, Before(block, row, layer) + own.begin,
               base_.data() + own.begin, own.count,
               block.extra[row] + mixed_ + own.begin);
  }

  // Some columns of mixture n, in place of its learned shift.
  void MixtureOfShift(const MixerBlock& block, int64_t row, int64_t layer,
                      int64_t n, StepColumns own) const {
    const int64_t column = n * s_.d_model + own.begin;
    float* mixed = block.extra[row] + mixed_ + column;
    AddToRow(shift_.data() + column, own.count, mixed);
    ShiftedRow(block.in[row] + own.begin, Before(block, row, layer) + own.begin,
               mixed, own.count, mixed);
  }

  void StepMixtures(MixerBlock& block, const StepShare& share) const {
    const int64_t each = shift_up_.front().panels();
    for (int64_t n = 0; n < s_.inputs; ++n) {
      StepShare own = share;
      own.begin = std::max<int64_t>(share.begin - n * each, 0);
      own.end = std::min(share.end - n * each, each);
      if (own.begin >= own.end) continue;
      const WeightMatrix& up = shift_up_[static_cast<size_t>(n)];
      RunProducts({Product(block, up, shift_down_ + n * s_.shift_rank,
                           mixed_ + n * s_.d_model)},
                  own);
      for (int64_t row = 0; row < block.rows(); ++row) {
        MixtureOfShift(block, row, share.layer, n, ColumnsOfPanels(up, own));
      }
    }
  }

  // The products of the mixtures in a step, after which the row is kept.
  void FirstProducts(MixerBlock& block, const StepShare& share) const {
    const int64_t d = s_.d_model;
    RunProducts(
        {Product(block, w_query_, mixed_ + kShiftQuery * d, query_),
         Product(block, w_key_, mixed_ + kShiftKey * d, key_),
         Product(block, w_value_, mixed_ + kShiftValue * d, value_),
         Product(block, w_gate_, mixed_ + kShiftGate * d, gate_),
         Product(block, decay_down_w_, mixed_ + kShiftDecay * d, decay_down_)},
        share);
    const StepColumns own =
        ColumnsOfPanels(decay_down_w_, share,
                        PanelUnits({&w_query_, &w_key_, &w_value_, &w_gate_}));
    for (int64_t row = 0; row < block.rows(); ++row) {
      float* down = block.extra[row] + decay_down_ + own.begin;
      TanhRow(down, own.count, down);
    }
    if (share.begin == 0) block.KeepLastRows(block.in, share.layer, kShift);
  }

  void MakeGates(const MixerBlock& block, int64_t row, StepColumns own) const {
    GateRow decay = decay_;
    decay.count = own.count;
    float* gates = block.extra[row] + gates_ + own.begin;
    DecayGateRow(decay, gates, gates, nullptr);
  }

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
