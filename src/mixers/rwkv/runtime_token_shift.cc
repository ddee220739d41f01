#include "mixers/rwkv/runtime_token_shift.h"

#include "kernels/matmul/matmul.h"

namespace tarn::mixers {

TokenShift::TokenShift(const ModelConfig& layer, MixerTensors& tensors)
    : s_(RwkvSizesOf(layer)),
      shift_(tensors.Vector("token_shift")),
      bonus_(tensors.Vector("bonus")),
      norm_weight_(tensors.Vector("norm.weight")),
      norm_bias_(tensors.Vector("norm.bias")) {
  norm_ = {.groups = s_.heads,
           .width = s_.d_key,
           .eps = s_.norm_eps,
           .centred = true,
           .weight_by_group = true};
  mixed_ = Keep(s_.inputs * s_.d_model);
  query_ = Keep(s_.width);
  key_ = Keep(s_.width);
  value_ = Keep(s_.width);
  decay_down_ = Keep(s_.rank);
  gates_ = Keep(s_.width);
  out_ = Matrix(tensors, "out_projection", s_.d_model, s_.width);
}

int64_t TokenShift::bytes() const { return matrix_bytes_; }

int64_t TokenShift::Keep(int64_t width) {
  const int64_t at = extra_width_;
  extra_width_ += width;
  return at;
}

WeightMatrix TokenShift::Matrix(MixerTensors& tensors, const std::string& name,
                                int64_t rows, int64_t inputs, bool bias) {
  WeightMatrix matrix = tensors.Stack({name}, {rows}, inputs, bias);
  matrix_bytes_ += matrix.bytes();
  return matrix;
}

std::vector<WeightMatrix> TokenShift::Matrices(MixerTensors& tensors,
                                               const std::string& name,
                                               int64_t count, int64_t rows,
                                               int64_t inputs) {
  std::vector<WeightMatrix> all = tensors.Matrices(name, count, rows, inputs);
  for (const WeightMatrix& matrix : all) matrix_bytes_ += matrix.bytes();
  return all;
}

void TokenShift::Multiply(MixerBlock& block, const WeightMatrix& w,
                          int64_t from, int64_t to) const {
  PackedMatMul(block.extra.data + from, block.extra.stride, block.rows(), w,
               {block.extra.data + to, block.extra.stride}, block.executor());
}

TensorView TokenShift::View(const MixerBlock& block, const Segment& segment,
                            int64_t column, int64_t width) const {
  return {block.extra[segment.row] + column,
          {1, segment.count, 1, width},
          {0, block.extra.stride, width},
          DType::kF32};
}

TensorView TokenShift::OutView(const MixerBlock& block, const Segment& segment,
                               int64_t head) const {
  return {block.out[segment.row] + head * s_.d_key,
          {1, segment.count, 1, s_.d_key},
          {0, block.out.stride, s_.d_key},
          DType::kF32};
}

void TokenShift::Mix(MixerBlock& block, int64_t layer) const {
  Shift(block, layer);
  Project(block);
  block.KeepLastRows(block.in, layer, kShift);
  const int64_t segments = static_cast<int64_t>(block.segments.size());
  // About three state entries a nanosecond.
  block.ForTasks(segments * s_.heads,
                 (s_.d_key * s_.d_key / 3 + 200) *
                     ((block.rows() + segments - 1) / segments),
                 [&](int64_t task, int) {
                   const Segment& segment =
                       block.segments[static_cast<size_t>(task / s_.heads)];
                   const int64_t head = task % s_.heads;
                   Advance(block, segment, head, State(segment, layer, head));
                 });
  block.ForRows(16 * s_.width,
                [&](int64_t row) { Finish(block, row, 0, s_.heads); });
}

void TokenShift::NormHeads(int64_t first, int64_t count, const float* gate,
                           float* out) const {
  GatedNormOptions norm = norm_;
  norm.groups = count;
  const int64_t column = first * s_.d_key;
  GatedNormRow(norm, out, gate, norm_weight_.data() + column,
               norm_bias_.data() + column, out);
}

}  // namespace tarn::mixers
