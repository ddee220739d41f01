#include "mixers/common/runtime_attention.h"

#include "kernels/rotary/rotary.h"

namespace tarn::mixers {

RuntimeAttention::RuntimeAttention(const ModelConfig& layer,
                                   MixerTensors& tensors)
    : heads_(layer.n_heads),
      d_key_(layer.d_key),
      d_value_(layer.d_value),
      key_width_(layer.n_heads * layer.d_key),
      value_width_(layer.n_heads * layer.d_value),
      rotary_(layer.positions == Positions::kRotary) {
  in_ =
      tensors.Stack({"query_projection", "key_projection", "value_projection"},
                    {key_width_, key_width_, value_width_}, layer.d_model,
                    /*biases=*/true);
  out_ = tensors.Stack({"out_projection"}, {layer.d_model}, value_width_,
                       /*biases=*/true);
}

void RuntimeAttention::RotateRow(const MixerBlock& block, int64_t row) const {
  const float* cos = block.places[row];
  // Queries and keys are adjacent: 2 H heads to rotate.
  tarn::RotateRow(cos, cos + d_key_ / 2, 2 * heads_, d_key_, block.in[row]);
}

void RuntimeAttention::RotateHead(const MixerBlock& block, int64_t row,
                                  int64_t head) const {
  const float* cos = block.places[row];
  tarn::RotateRow(cos, cos + d_key_ / 2, 1, d_key_, Query(block, row, head));
  tarn::RotateRow(cos, cos + d_key_ / 2, 1, d_key_, Key(block, row, head));
}

}  // namespace tarn::mixers
