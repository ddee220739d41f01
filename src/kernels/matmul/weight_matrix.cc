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
    : inputs_(inputs) {
  const WeightRows all = {outputs, &format};
  Build({&all, 1}, std::move(arena));
}

WeightMatrix::WeightMatrix(std::span<const WeightRows> rows, int64_t inputs,
                           std::shared_ptr<WeightArena> arena)
    : inputs_(inputs) {
  Build(rows, std::move(arena));
}

void WeightMatrix::Build(std::span<const WeightRows> rows,
                         std::shared_ptr<WeightArena> arena) {
  for (const WeightRows& part : rows) {
    if (part.rows < 1 || inputs_ < 1) {
      throw ShapeError("WeightMatrix: shape", "[outputs >= 1, inputs >= 1]",
                       ShapeText({part.rows, inputs_}));
    }
    const int64_t bytes = Bytes(part.rows, inputs_, *part.format);
    // The sum of a few such sizes must not wrap.
    if (bytes_ > INT64_MAX - bytes || outputs_ > INT64_MAX - part.rows) {
      throw ShapeError("WeightMatrix: shape", "under 2^58 weights",
                       ShapeText({part.rows, inputs_}));
    }
    const int64_t panels = (part.rows + kPanel - 1) / kPanel;
    segments_.push_back({part.format, outputs_, part.rows, panels_, panels,
                         part.format->panel_bytes(inputs_), nullptr});
    outputs_ += part.rows;
    panels_ += panels;
    bytes_ += bytes;
  }
  if (segments_.empty()) {
    throw ShapeError("WeightMatrix: shape", "[outputs >= 1, inputs >= 1]",
                     ShapeText({0, inputs_}));
  }
  arena_ =
      arena != nullptr ? std::move(arena) : std::make_shared<WeightArena>();
  uint8_t* taken = arena_->Take(bytes_);
  bias_ = reinterpret_cast<float*>(taken);
  std::memset(taken, 0, static_cast<size_t>(panels_ * kBiasBytes));
  taken += panels_ * kBiasBytes;
  for (Segment& s : segments_) {
    s.weights = taken;
    taken += s.panels * s.panel_bytes;
    if (s.rows % kPanel != 0) {
      std::memset(taken - s.panel_bytes, 0, static_cast<size_t>(s.panel_bytes));
    }
  }
}

void WeightMatrix::CheckRows(const char* where, int64_t first,
                             int64_t rows) const {
  if (first < 0 || rows < 0 || rows > outputs_ || first > outputs_ - rows) {
    throw ShapeError(StrCat("WeightMatrix::", where, ": rows"),
                     StrCat("a range in [0, ", outputs_, ")"),
                     StrCat(rows, " from ", first));
  }
}

template <typename F>
void WeightMatrix::ForParts(int64_t first, int64_t rows, const F& f) {
  for (int64_t done = 0; done < rows;) {
    const Segment& s = Holding(first + done);
    const int64_t row = first + done - s.output;
    const int64_t column = row % kPanel;
    const int64_t count = std::min(
        {kPanel - column, rows - done, s.output + s.rows - first - done});
    f(s, done, count, column, s.weights + row / kPanel * s.panel_bytes);
    done += count;
  }
}

void WeightMatrix::SetRows(int64_t first, int64_t rows, const float* weights,
                           const float* bias) {
  CheckRows("SetRows", first, rows);
  ForParts(first, rows,
           [&](const Segment& s, int64_t done, int64_t count, int64_t column,
               uint8_t* panel) {
             s.format->pack(weights + done * inputs_, count, inputs_, column,
                            panel);
           });
  if (bias != nullptr) SetBias(first, rows, bias);
}

void WeightMatrix::SetStoredRows(int64_t first, int64_t rows,
                                 const uint8_t* blocks) {
  CheckRows("SetStoredRows", first, rows);
  if (rows == 0) return;
  const Segment& only = Holding(first);
  if (first + rows > only.output + only.rows) {
    throw ShapeError("WeightMatrix::SetStoredRows: rows", "rows of one format",
                     StrCat(rows, " from ", first));
  }
  if (only.format->pack_blocks == nullptr) {
    throw ArgumentError("WeightMatrix::SetStoredRows: format",
                        "one that takes rows as files store them",
                        only.format->name);
  }
  const int64_t row_bytes = only.format->StoredRowBytes(inputs_);
  ForParts(first, rows,
           [&](const Segment& s, int64_t done, int64_t count, int64_t column,
               uint8_t* panel) {
             s.format->pack_blocks(blocks + done * row_bytes, count, inputs_,
                                   column, panel);
           });
}

void WeightMatrix::SetBias(int64_t first, int64_t rows, const float* bias) {
  CheckRows("SetBias", first, rows);
  ForParts(first, rows,
           [&](const Segment& s, int64_t done, int64_t count, int64_t column,
               const uint8_t*) {
             const int64_t panel = s.panel + (first + done - s.output) / kPanel;
             std::copy_n(bias + done, count, bias_ + panel * kPanel + column);
           });
}

void WeightMatrix::ReadRow(int64_t output, float* out) const {
  const Segment& s = Holding(output);
  const int64_t row = output - s.output;
  s.format->read(s.weights + row / kPanel * s.panel_bytes, inputs_,
                 row % kPanel, out);
}

}  // namespace tarn
