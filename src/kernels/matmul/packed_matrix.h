// A weight matrix as the matrix product reads it: packed once, at load.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/aligned_buffer.h"

namespace tarn {

/// W [outputs, inputs] and a bias [outputs], in panels of kPanel outputs:
/// panel p holds W[p * kPanel + j, k] at [k][j], so that a product with one
/// row of inputs reads memory from front to back. Outputs are padded with zero
/// rows to a whole panel. Filled by one thread, then read by any number.
class PackedMatrix {
 public:
  /// Outputs in a panel: four AVX-512 vectors, 256 bytes of float32.
  static constexpr int64_t kPanel = 64;

  PackedMatrix() = default;
  /// All zeros. outputs, inputs >= 1; dtype kF32 or kBF16 (rounded to nearest
  /// even). Throws ShapeError, DTypeError.
  PackedMatrix(int64_t outputs, int64_t inputs, DType dtype);

  /// Sets W[first + r, k] = weights[r * inputs + k], 0 <= r < rows, and the
  /// bias of these rows when it is not null. Throws ShapeError.
  void SetRows(int64_t first, int64_t rows, const float* weights,
               const float* bias);
  /// Row `output` of W as held, widened to float32: out [inputs].
  void ReadRow(int64_t output, float* out) const;

  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }
  int64_t panels() const { return (outputs_ + kPanel - 1) / kPanel; }
  DType dtype() const { return dtype_; }
  /// Bytes held, padding included.
  int64_t bytes() const { return weights_.bytes() + bias_.bytes(); }
  /// Panel p: [inputs][kPanel] of dtype().
  const uint8_t* Panel(int64_t p) const {
    return weights_.data() + p * PanelBytes();
  }
  const float* bias() const { return bias_.data(); }  // [panels * kPanel]

 private:
  int64_t PanelBytes() const {
    return inputs_ * kPanel * static_cast<int64_t>(DTypeBytes(dtype_));
  }

  int64_t outputs_ = 0, inputs_ = 0;
  DType dtype_ = DType::kF32;
  AlignedBuffer<uint8_t> weights_;
  AlignedBuffer<float> bias_;
};

/// Nearest bfloat16, ties to even; a NaN stays a NaN.
uint16_t RoundToBF16(float x);

}  // namespace tarn
