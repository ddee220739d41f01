// The parts that read the row before each (feed_forward/parts.cc):
//   x += W_2 relu(W_1 (y + token_shift * (y' - y)))^2, y' before y,
// where it is gated, times sigma(W_g (y + gate_shift * (y' - y))). A causal
// block is one piece, so that y' is a row of it or of a state.
#include "kernels/gate_rows/gate_rows.h"
#include "kernels/token_shift/token_shift.h"
#include "runtime/feed_forward/feed_forward.h"

namespace tarn {
namespace {

class ChannelMixPart final : public RuntimeFeedForward {
 public:
  ChannelMixPart(const ModelConfig& layer, MixerTensors& tensors, bool gated)
      : token_shift_(tensors.Vector("token_shift")),
        linear1_(tensors.Stack({"linear1"}, {layer.d_ff}, layer.d_model,
                               /*biases=*/false)),
        linear2_(tensors.Stack({"linear2"}, {layer.d_model}, layer.d_ff,
                               /*biases=*/false)) {
    if (!gated) return;
    gate_shift_ = tensors.Vector("gate_shift");
    gate_ = tensors.Stack({"gate"}, {layer.d_model}, layer.d_model,
                          /*biases=*/false);
  }

  int64_t bytes() const override {
    const size_t shifts = token_shift_.size() + gate_shift_.size();
    return linear1_.bytes() + linear2_.bytes() + gate_.bytes() +
           static_cast<int64_t>(shifts * sizeof(float));
  }
  // The gate's row follows that of linear1, and what it reads that of linear1.
  int64_t hidden_width() const override {
    return linear1_.outputs() + gate_.outputs();
  }
  int64_t in_width() const override {
    return linear1_.inputs() + gate_.inputs();
  }

  void Run(MixerBlock& block, const FeedForwardRows& rows,
           int64_t layer) const override {
    const int64_t d_model = linear1_.inputs(), d_ff = linear1_.outputs();
    const bool gated = gate_.outputs() > 0;
    // The mixer has read what it left in `in`.
    block.ForRows(gated ? 2 * d_model : d_model, [&](int64_t row) {
      Shift(block, rows.y, row, layer, {0, d_model});
    });
    block.KeepLastRows(rows.y, layer, Kept(block, layer));
    PackedMatMul(block.in.data, block.in.stride, rows.count, linear1_,
                 {rows.hidden.data, rows.hidden.stride}, block.executor());
    block.ForRows(d_ff / 4, [&](int64_t row) {
      SquareReluRow(rows.hidden[row], d_ff, rows.hidden[row]);
    });
    if (gated) return AddGated(block, rows);
    PackedMatMul(rows.hidden.data, rows.hidden.stride, rows.count, linear2_,
                 {rows.x.data, rows.x.stride}, block.executor(),
                 MatMulFinish::kAdd);
  }

  // Shifted rows; the products that read them; the last product and its gate.
  int phases() const override { return 3; }
  int64_t units(int phase) const override {
    switch (phase) {
      case 0:
        return ColumnUnits(linear1_.inputs(), WeightMatrix::kPanel);
      case 1:
        return PanelUnits({&linear1_, &gate_});
      default:
        return PanelUnits({&linear2_});
    }
  }
  void Step(MixerBlock& block, const FeedForwardRows& rows,
            const StepShare& share) const override {
    const int64_t d_model = linear1_.inputs(), d_ff = linear1_.outputs();
    const Rows in = block.in, hidden = rows.hidden;
    if (share.phase == 0) {
      for (int64_t row = 0; row < rows.count; ++row) {
        Shift(block, rows.y, row, share.layer,
              ColumnsOf(d_model, WeightMatrix::kPanel, share));
      }
    } else if (share.phase == 1) {
      RunProducts(
          {{.w = &linear1_, .x = in, .y = hidden},
           {.w = &gate_, .x = in.Columns(d_model), .y = hidden.Columns(d_ff)}},
          share);
      const StepColumns own = ColumnsOfPanels(linear1_, share);
      for (int64_t row = 0; row < rows.count; ++row) {
        float* x = hidden[row] + own.begin;
        SquareReluRow(x, own.count, x);
      }
      if (share.begin == 0) {
        block.KeepLastRows(rows.y, share.layer, Kept(block, share.layer));
      }
    } else {
      RunProducts({{.w = &linear2_, .x = hidden, .y = rows.x}}, share);
      if (gate_.outputs() == 0) return;
      const StepColumns own = ColumnsOfPanels(linear2_, share);
      for (int64_t row = 0; row < rows.count; ++row) {
        float* x = rows.x[row] + own.begin;
        float* gate = hidden[row] + d_ff + own.begin;
        SigmoidRow(gate, own.count, gate);
        for (int64_t i = 0; i < own.count; ++i) x[i] *= gate[i];
      }
    }
  }
  const void* Reads(int phase, int64_t unit) const override {
    if (phase == 0) return nullptr;
    return phase == 1 ? PanelAt({&linear1_, &gate_}, unit)
                      : linear2_.Panel(unit);
  }

 private:
  // The number of the tensor that holds the last row of a sequence.
  static int64_t Kept(const MixerBlock& block, int64_t layer) {
    return block.segments.front().state->layout().Last(layer);
  }

  // Some columns of what the products of a row read.
  void Shift(const MixerBlock& block, const Rows& y, int64_t row, int64_t layer,
             StepColumns own) const {
    const float* now = y[row] + own.begin;
    const float* before =
        block.RowBefore(y, row, layer, Kept(block, layer)) + own.begin;
    float* in = block.in[row] + own.begin;
    ShiftedRow(now, before, token_shift_.data() + own.begin, own.count, in);
    if (gate_.outputs() == 0) return;
    ShiftedRow(now, before, gate_shift_.data() + own.begin, own.count,
               in + linear1_.inputs());
  }

  // The second product, times the gate.
  void AddGated(MixerBlock& block, const FeedForwardRows& rows) const {
    const int64_t d_model = linear1_.inputs(), d_ff = linear1_.outputs();
    PackedMatMul(block.in.data + d_model, block.in.stride, rows.count, gate_,
                 {rows.hidden.data + d_ff, rows.hidden.stride},
                 block.executor());
    PackedMatMul(rows.hidden.data, rows.hidden.stride, rows.count, linear2_,
                 {block.in.data, block.in.stride}, block.executor());
    block.ForRows(2 * d_model, [&](int64_t row) {
      float *gate = rows.hidden[row] + d_ff, *x = rows.x[row];
      SigmoidRow(gate, d_model, gate);
      const float* mixed = block.in[row];
      for (int64_t i = 0; i < d_model; ++i) x[i] += gate[i] * mixed[i];
    });
  }

  const std::vector<float> token_shift_;
  const WeightMatrix linear1_, linear2_;
  std::vector<float> gate_shift_;  // empty without a gate
  WeightMatrix gate_;
};

}  // namespace

std::vector<RuntimeFeedForwardRow> ChannelMixFeedForwards() {
  using Part = std::unique_ptr<RuntimeFeedForward>;
  return {{"channel-mix",
           [](const ModelConfig& layer, MixerTensors& tensors) -> Part {
             return std::make_unique<ChannelMixPart>(layer, tensors, false);
           }},
          {"gated-channel-mix",
           [](const ModelConfig& layer, MixerTensors& tensors) -> Part {
             return std::make_unique<ChannelMixPart>(layer, tensors, true);
           }}};
}

}  // namespace tarn
