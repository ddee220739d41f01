// The feed-forward part that reads the row before each
// (config/feed_forward_form.h):
//   x += W_2 relu(W_1 (y + token_shift * (y' - y)))^2, y = in(x), y' before y.
// A causal block is one piece, so that y' is a row of it or of a state.
#include "kernels/gate_rows/gate_rows.h"
#include "kernels/token_shift/token_shift.h"
#include "runtime/stack/block.h"

namespace tarn {

void Block::ChannelMix(const LayerWeights& w, int64_t layer) {
  const int64_t tensor = segments.front().state->layout().Last(layer);
  const int64_t d_model = config_.d_model, d_ff = config_.d_ff;
  const float* shift = w.token_shift.data();
  const Rows y = Input(w.last_norm(), 0, rows());
  // The mixer has read what it left in `in`.
  ForRows(d_model, [&](int64_t row) {
    ShiftedRow(y[row], RowBefore(y, row, layer, tensor), shift, d_model,
               in[row]);
  });
  KeepLastRows(y, layer, tensor);
  PackedMatMul(in.data, in.stride, rows(), w.linear1,
               {hidden_.data, hidden_.stride}, executor_);
  ForRows(d_ff / 4, [&](int64_t row) {
    SquareReluRow(hidden_[row], d_ff, hidden_[row]);
  });
  PackedMatMul(hidden_.data, hidden_.stride, rows(), w.linear2,
               {x_.data, x_.stride}, executor_, MatMulFinish::kAdd);
  CloseSublayer(w.last_norm());
}

}  // namespace tarn
