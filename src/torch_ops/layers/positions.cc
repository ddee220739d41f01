// Position information for models in Python: the tables of kernels/positions/positions.h as
// tensors, and the rotation, composed from torch's operators.
#include "torch_ops/layers/positions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "kernels/positions/positions.h"

namespace tarn::ops {
namespace {

at::Tensor SinusoidalTable(int64_t seq_len, int64_t width) {
  TORCH_CHECK_VALUE(seq_len >= 0 && width >= 1,
                    "sinusoidal_table: want seq_len >= 0 and width >= 1, got ",
                    seq_len, " and ", width);
  at::Tensor table = at::empty({seq_len, width}, at::kFloat);
  float* rows = table.mutable_data_ptr<float>();
  for (int64_t t = 0; t < seq_len; ++t) {
    SinusoidalRow(t, width, rows + t * width);
  }
  return table;
}

std::tuple<at::Tensor, at::Tensor> RotaryTables(int64_t seq_len, int64_t d_key,
                                                double base) {
  TORCH_CHECK_VALUE(
      seq_len >= 0 && d_key >= 2 && d_key % 2 == 0 && base > 1,
      "rotary_tables: want seq_len >= 0, an even d_key and base > "
      "1, got ",
      seq_len, ", ", d_key, " and ", base);
  at::Tensor cos = at::empty({seq_len, d_key / 2}, at::kFloat);
  at::Tensor sin = at::empty({seq_len, d_key / 2}, at::kFloat);
  for (int64_t t = 0; t < seq_len; ++t) {
    RotaryRow(t, d_key, base, cos.mutable_data_ptr<float>() + t * (d_key / 2),
              sin.mutable_data_ptr<float>() + t * (d_key / 2));
  }
  return {cos, sin};
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("sinusoidal_table(int seq_len, int width) -> Tensor", &SinusoidalTable);
  m.def(
      "rotary_tables(int seq_len, int d_key, float base) -> (Tensor cos, "
      "Tensor sin)",
      &RotaryTables);
  m.def("rotate(Tensor heads, Tensor cos, Tensor sin) -> Tensor", &RotateHeads);
}

}  // namespace

at::Tensor RotateHeads(const at::Tensor& heads, const at::Tensor& cos,
                       const at::Tensor& sin) {
  const std::vector<at::Tensor> halves = heads.chunk(2, -1);
  return at::cat(
      {halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin},
      -1);
}

}  // namespace tarn::ops
