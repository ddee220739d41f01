#include "kernels/matmul/weight_matrix.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace tarn {

int64_t WeightMatrix::Bytes(int64_t outputs, int64_t inputs,
                            const WeightFormat& format) {
  // A format takes at most 8 bytes a weight, and a bias 4 bytes an output.
  constexpr int64_t kMostWeights = int64_t{1} << 58;
  const int64_t panels = outputs / kPanel + (outputs % kPanel != 0 ? 1 : 0);
  if (inputs > kMostWeights / kPanel ||
      panels > kMostWeights / kPanel / inputs) {
    throw ShapeError("WeightMatrix: shape", "under 2^58 weights",
                     ShapeText({outputs, inputs}));
  }
  return panels * (format.panel_bytes(inputs) + kBiasBytes);
}

WeightMatrix::WeightMatrix(int64_t outputs, int64_t inputs,
                           const WeightFormat& format,
                           std::shared_ptr<WeightArena> arena)
    : outputs_(outputs), inputs_(inputs), format_(&format) {
  if (outputs < 1 || inputs < 1) {
    throw ShapeError("WeightMatrix: shape", "[outputs >= 1, inputs >= 1]",
                     ShapeText({outputs, inputs}));
  }
  const int64_t bytes = Bytes(outputs, inputs, format);
  panel_bytes_ = format.panel_bytes(inputs);
  arena_ =
      arena != nullptr ? std::move(arena) : std::make_shared<WeightArena>();
  uint8_t* taken = arena_->Take(bytes);
  bias_ = reinterpret_cast<float*>(taken);
  weights_ = taken + panels() * kBiasBytes;
  std::memset(taken, 0, static_cast<size_t>(panels() * kBiasBytes));
  if (outputs % kPanel != 0) {
    std::memset(weights_ + (panels() - 1) * panel_bytes_, 0,
                static_cast<size_t>(panel_bytes_));
  }
}

void WeightMatrix::CheckRows(int64_t first, int64_t rows) const {
  if (first < 0 || rows < 0 || rows > outputs_ || first > outputs_ - rows) {
    throw ShapeError("WeightMatrix::SetRows: rows",
                     StrCat("a range in [0, ", outputs_, ")"),
                     StrCat(rows, " from ", first));
  }
}

void WeightMatrix::SetRows(int64_t first, int64_t rows, const float* weights,
                           const float* bias) {
  CheckRows(first, rows);
  for (int64_t done = 0; done < rows;) {
    const int64_t output = first + done;
    const int64_t column = output % kPanel;
    const int64_t count = std::min(kPanel - column, rows - done);
    format_->pack(weights + done * inputs_, count, inputs_, column,
                  weights_ + output / kPanel * panel_bytes_);
    done += count;
  }
  if (bias != nullptr) SetBias(first, rows, bias);
}

void WeightMatrix::SetBias(int64_t first, int64_t rows, const float* bias) {
  CheckRows(first, rows);
  std::copy(bias, bias + rows, bias_ + first);
}

void WeightMatrix::ReadRow(int64_t output, float* out) const {
  format_->read(Panel(output / kPanel), inputs_, output % kPanel, out);
}

}  // namespace tarn
