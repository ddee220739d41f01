// A weight matrix as the matrix product reads it: packed once, when loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/matmul/weight_arena.h"
#include "kernels/matmul/weight_format.h"

namespace tarn {

/// Consecutive rows of a matrix in one format.
struct WeightRows {
  int64_t rows = 0;
  const WeightFormat* format = &kF32Weights;
};

/// W [outputs, inputs] in one weight format or in several, each for a range of
/// its rows, and a bias [outputs]. A range of rows is held in panels of kPanel
/// outputs, one after the other; its outputs are padded with zero rows to a
/// whole panel, so that panels of ranges with rows % kPanel != 0 hold fewer.
/// Filled once, by several threads if no two fill one panel; then read by any
/// number.
class WeightMatrix {
 public:
  static constexpr int64_t kPanel = kPanelOutputs;

  /// Rows in one format, as held.
  struct Segment {
    const WeightFormat* format;
    int64_t output, rows;   // [output, output + rows)
    int64_t panel, panels;  // [panel, panel + panels)
    int64_t panel_bytes;
    uint8_t* weights;
  };

  WeightMatrix() = default;
  /// A matrix whose rows are to be set, with a bias of zeros. outputs, inputs
  /// >= 1. It is in `arena`, or in a block of its size when that is null.
  /// Throws ShapeError, std::bad_alloc.
  WeightMatrix(int64_t outputs, int64_t inputs, const WeightFormat& format,
               std::shared_ptr<WeightArena> arena = nullptr);
  /// The same with rows in several formats, in order; each rows >= 1.
  WeightMatrix(std::span<const WeightRows> rows, int64_t inputs,
               std::shared_ptr<WeightArena> arena = nullptr);
  /// Bytes that such a matrix takes, padding and bias included. outputs, inputs
  /// >= 1; throws ShapeError when they come near 2^63.
  static int64_t Bytes(int64_t outputs, int64_t inputs,
                       const WeightFormat& format);

  /// Sets W[first + r, k] = weights[r * inputs + k], 0 <= r < rows, rounded to
  /// the format of the row, and the bias of these rows when it is not null.
  /// Throws ShapeError.
  void SetRows(int64_t first, int64_t rows, const float* weights,
               const float* bias);
  /// Sets these rows from blocks of their format's scheme, each row
  /// scheme->RowBytes(inputs()) bytes, without changing a number. Throws
  /// ShapeError, also for rows in several formats; ArgumentError where the
  /// format has no scheme.
  void SetStoredRows(int64_t first, int64_t rows, const uint8_t* blocks);
  void SetBias(int64_t first, int64_t rows, const float* bias);
  /// Row `output` of W as held, widened to float32: out [inputs].
  void ReadRow(int64_t output, float* out) const;

  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }
  int64_t panels() const { return panels_; }
  std::span<const Segment> segments() const { return segments_; }
  /// Bytes held, padding included.
  int64_t bytes() const { return bytes_; }

  /// Of panel p: its format, its memory, laid out as the format says, its first
  /// output and how many it holds.
  const WeightFormat& FormatAt(int64_t p) const { return *At(p).format; }
  const uint8_t* Panel(int64_t p) const {
    const Segment& s = At(p);
    return s.weights + (p - s.panel) * s.panel_bytes;
  }
  int64_t FirstOutput(int64_t p) const {
    const Segment& s = At(p);
    return s.output + (p - s.panel) * kPanel;
  }
  int64_t Outputs(int64_t p) const {
    const Segment& s = At(p);
    const int64_t left = s.rows - (p - s.panel) * kPanel;
    return left < kPanel ? left : kPanel;
  }
  const float* Bias(int64_t p) const { return bias_ + p * kPanel; }
  /// The panel that holds an output.
  int64_t PanelOf(int64_t output) const {
    const Segment& s = Holding(output);
    return s.panel + (output - s.output) / kPanel;
  }

 private:
  void Build(std::span<const WeightRows> rows,
             std::shared_ptr<WeightArena> arena);
  void CheckRows(const char* where, int64_t first, int64_t rows) const;
  // f(segment, first row of the part, rows of the part, its column, its panel)
  // for the parts of rows that are in one panel each.
  template <typename F>
  void ForParts(int64_t first, int64_t rows, const F& f);
  const Segment& At(int64_t panel) const {
    const Segment* s = segments_.data();
    while (panel >= s->panel + s->panels) ++s;
    return *s;
  }
  const Segment& Holding(int64_t output) const {
    const Segment* s = segments_.data();
    while (output >= s->output + s->rows) ++s;
    return *s;
  }

  static constexpr int64_t kBiasBytes =
      kPanel * static_cast<int64_t>(sizeof(float));  // of a panel

  int64_t outputs_ = 0, inputs_ = 0, panels_ = 0, bytes_ = 0;
  std::vector<Segment> segments_;
  std::shared_ptr<WeightArena> arena_;
  // Inside arena_. The bias comes first: after the last panel of one matrix
  // comes the next matrix, whose first panel the product prefetches.
  float* bias_ = nullptr;  // [panels * kPanel]
};

}  // namespace tarn
