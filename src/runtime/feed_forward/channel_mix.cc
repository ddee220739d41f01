// The part that reads the row before each (feed_forward/parts.cc):
//   x += W_2 relu(W_1 (y + token_shift * (y' - y)))^2, y' before y.
// A causal block is one piece, so that y' is a row of it or of a state.
#include "kernels/gate_rows/gate_rows.h"
#include "kernels/token_shift/token_shift.h"
#include "runtime/feed_forward/feed_forward.h"

namespace tarn {
namespace {

class ChannelMixPart final : public RuntimeFeedForward {
 public:
  ChannelMixPart(const ModelConfig& layer, MixerTensors& tensors)
      : token_shift_(tensors.Vector("token_shift")),
        linear1_(tensors.Stack({"linear1"}, {layer.d_ff}, layer.d_model,
                               /*biases=*/false)),
        linear2_(tensors.Stack({"linear2"}, {layer.d_model}, layer.d_ff,
                               /*biases=*/false)) {}

  int64_t bytes() const override {
    return linear1_.bytes() + linear2_.bytes() +
           static_cast<int64_t>(token_shift_.size() * sizeof(float));
  }
  int64_t hidden_width() const override { return linear1_.outputs(); }
  int64_t in_width() const override { return linear1_.inputs(); }

  void Run(MixerBlock& block, const FeedForwardRows& rows,
           int64_t layer) const override {
    const int64_t d_model = linear1_.inputs(), d_ff = linear1_.outputs();
    const int64_t tensor = block.segments.front().state->layout().Last(layer);
    // The mixer has read what it left in `in`.
    block.ForRows(d_model, [&](int64_t row) {
      ShiftedRow(rows.y[row], block.RowBefore(rows.y, row, layer, tensor),
                 token_shift_.data(), d_model, block.in[row]);
    });
    block.KeepLastRows(rows.y, layer, tensor);
    PackedMatMul(block.in.data, block.in.stride, rows.count, linear1_,
                 {rows.hidden.data, rows.hidden.stride}, block.executor());
    block.ForRows(d_ff / 4, [&](int64_t row) {
      SquareReluRow(rows.hidden[row], d_ff, rows.hidden[row]);
    });
    PackedMatMul(rows.hidden.data, rows.hidden.stride, rows.count, linear2_,
                 {rows.x.data, rows.x.stride}, block.executor(),
                 MatMulFinish::kAdd);
  }

 private:
  const std::vector<float> token_shift_;
  const WeightMatrix linear1_, linear2_;
};

}  // namespace

std::vector<RuntimeFeedForwardRow> ChannelMixFeedForwards() {
  return {{"channel-mix",
           [](const ModelConfig& layer,
              MixerTensors& tensors) -> std::unique_ptr<RuntimeFeedForward> {
             return std::make_unique<ChannelMixPart>(layer, tensors);
           }}};
}

}  // namespace tarn
