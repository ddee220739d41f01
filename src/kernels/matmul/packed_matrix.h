// A weight matrix as the matrix product reads it: packed once, when loaded.
#pragma once

#include <cstdint>
#include <memory>

#include "core/dtype.h"
#include "kernels/aligned_buffer.h"

namespace tarn {

/// One block for the weights of many matrices, in the order in which a step
/// reads them: small matrices then share huge pages. One thread takes memory
/// from front to back; the matrices keep the block alive.
class WeightMemory {
 public:
  explicit WeightMemory(int64_t bytes) : block_(bytes) {}
  /// `bytes` zeroed bytes at a multiple of 64; throws std::bad_alloc when the
  /// block is used up.
  uint8_t* Take(int64_t bytes);

 private:
  AlignedBuffer<uint8_t> block_;
  int64_t used_ = 0;
};

/// W [outputs, inputs] and a bias [outputs], in panels of kPanel outputs:
/// panel p holds W[p * kPanel + j, k] at [k][j], so that a product with one
/// row of inputs reads memory from front to back. Outputs are padded with zero
/// rows to a whole panel. Filled by one thread, then read by any number.
class PackedMatrix {
 public:
  /// Outputs in a panel: four AVX-512 vectors, 256 bytes of float32.
  static constexpr int64_t kPanel = 64;

  PackedMatrix() = default;
  /// A matrix of zeros. outputs, inputs >= 1; dtype kF32 or kBF16 (rounded to
  /// nearest even). Weights lie in `memory`, or in their own when it is null.
  /// Throws ShapeError, DTypeError, std::bad_alloc.
  PackedMatrix(int64_t outputs, int64_t inputs, DType dtype,
               std::shared_ptr<WeightMemory> memory = nullptr);
  /// Bytes of WeightMemory that such a matrix takes. outputs, inputs >= 1;
  /// throws ShapeError when they pass 2^63.
  static int64_t WeightBytes(int64_t outputs, int64_t inputs, DType dtype);

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
  int64_t bytes() const { return panels() * PanelBytes() + bias_.bytes(); }
  /// Panel p: [inputs][kPanel] of dtype().
  const uint8_t* Panel(int64_t p) const { return weights_ + p * PanelBytes(); }
  const float* bias() const { return bias_.data(); }  // [panels * kPanel]

 private:
  int64_t PanelBytes() const {
    return inputs_ * kPanel * static_cast<int64_t>(DTypeBytes(dtype_));
  }

  int64_t outputs_ = 0, inputs_ = 0;
  DType dtype_ = DType::kF32;
  std::shared_ptr<WeightMemory> memory_;
  uint8_t* weights_ = nullptr;  // inside memory_
  AlignedBuffer<float> bias_;
};

/// Nearest bfloat16, ties to even; a NaN stays a NaN.
uint16_t RoundToBF16(float x);

}  // namespace tarn
