// A weight matrix as the matrix product reads it: packed once, when loaded.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/matmul/weight_arena.h"
#include "kernels/matmul/weight_format.h"

namespace tarn {

/// W [outputs, inputs] in a weight format and a bias [outputs], in panels of
/// kPanel outputs, one after the other. Outputs are padded with zero rows to a
/// whole panel. Filled once, by several threads if no two fill one panel; then
/// read by any number.
class WeightMatrix {
 public:
  static constexpr int64_t kPanel = kPanelOutputs;

  WeightMatrix() = default;
  /// A matrix whose rows are to be set, with a bias of zeros. outputs, inputs
  /// >= 1. It is in `arena`, or in a block of its size when that is null.
  /// Throws ShapeError, std::bad_alloc.
  WeightMatrix(int64_t outputs, int64_t inputs, const WeightFormat& format,
               std::shared_ptr<WeightArena> arena = nullptr);
  /// Bytes that such a matrix takes, padding and bias included. outputs, inputs
  /// >= 1; throws ShapeError when they come near 2^63.
  static int64_t Bytes(int64_t outputs, int64_t inputs,
                       const WeightFormat& format);

  /// Sets W[first + r, k] = weights[r * inputs + k], 0 <= r < rows, rounded to
  /// the format, and the bias of these rows when it is not null. Throws
  /// ShapeError.
  void SetRows(int64_t first, int64_t rows, const float* weights,
               const float* bias);
  void SetBias(int64_t first, int64_t rows, const float* bias);
  /// Row `output` of W as held, widened to float32: out [inputs].
  void ReadRow(int64_t output, float* out) const;

  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }
  int64_t panels() const { return (outputs_ + kPanel - 1) / kPanel; }
  const WeightFormat& format() const { return *format_; }
  /// Bytes held, padding included.
  int64_t bytes() const { return panels() * (panel_bytes_ + kBiasBytes); }
  /// Panel p, laid out as the format says.
  const uint8_t* Panel(int64_t p) const { return weights_ + p * panel_bytes_; }
  const float* bias() const { return bias_; }  // [panels * kPanel]

 private:
  void CheckRows(int64_t first, int64_t rows) const;

  static constexpr int64_t kBiasBytes =
      kPanel * static_cast<int64_t>(sizeof(float));  // of a panel

  int64_t outputs_ = 0, inputs_ = 0, panel_bytes_ = 0;
  const WeightFormat* format_ = &kF32Weights;
  std::shared_ptr<WeightArena> arena_;
  // Inside arena_. The bias comes first: after the last panel of one matrix
  // comes the next matrix, whose first panel the product prefetches.
  float* bias_ = nullptr;
  uint8_t* weights_ = nullptr;
};

}  // namespace tarn
