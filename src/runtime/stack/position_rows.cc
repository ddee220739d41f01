#include "runtime/stack/position_rows.h"

#include <algorithm>

#include "kernels/positions/positions.h"

namespace tarn {
namespace {

// There are at least as many places as a block has rows, so that the rows of a
// prompt never share one.
constexpr int64_t kPlaces = 256;

size_t Place(int64_t position) {
  return static_cast<size_t>(position % kPlaces);
}

}  // namespace

PositionRows::PositionRows(const ModelConfig& config)
    : rotary_(config.positions == Positions::kRotary) {
  if (rotary_) {
    table_width_ = config.RotaryWidth();
    const int64_t tables = 1 + static_cast<int64_t>(config.rotary_bases.size());
    width_ = tables * table_width_;
    factors_.resize(static_cast<size_t>(width_ / 2));
    double* frequencies = factors_.data();
    RotaryFrequencies(table_width_, config.rotary_base, config.Scaling(),
                      frequencies);
    magnitude_ = RotaryMagnitude(config.Scaling());
    for (const double base : config.rotary_bases) {
      frequencies += table_width_ / 2;
      RotaryFrequencies(table_width_, base, frequencies);
    }
  } else if (config.positions == Positions::kSinusoidal) {
    width_ = config.position_combine == PositionCombine::kConcat
                 ? config.d_model - config.EmbeddingWidth()
                 : config.d_model;
    factors_.resize(static_cast<size_t>((width_ + 1) / 2));
    SinusoidalPeriods(width_, factors_.data());
  }
  if (width_ == 0) return;
  kept_.assign(kPlaces, -1);
  claimed_.assign(kPlaces, 0);
  to_fill_.reserve(kPlaces);
  rows_ = AlignedBuffer<float>(kPlaces * width_);
}

std::span<const int64_t> PositionRows::Claim(
    std::span<const int64_t> positions) {
  to_fill_.clear();
  ++call_;
  if (width_ == 0) return {};
  for (const int64_t position : positions) {
    const size_t place = Place(position);
    // A row that this block found or took must stay until the block ends.
    if (claimed_[place] == call_) continue;
    claimed_[place] = call_;
    if (kept_[place] == position) continue;
    kept_[place] = position;
    to_fill_.push_back(position);
  }
  return to_fill_;
}

void PositionRows::Fill(int64_t position) {
  Compute(position,
          rows_.data() + static_cast<int64_t>(Place(position)) * width_);
}

void PositionRows::Unclaim() {
  for (const int64_t position : to_fill_) kept_[Place(position)] = -1;
}

void PositionRows::Get(int64_t position, float* out) const {
  const size_t place = Place(position);
  if (kept_[place] == position) {
    std::copy_n(rows_.data() + static_cast<int64_t>(place) * width_, width_,
                out);
  } else {
    Compute(position, out);
  }
}

void PositionRows::Compute(int64_t position, float* out) const {
  if (rotary_) {
    double magnitude = magnitude_;
    const double* frequencies = factors_.data();
    for (const float* end = out + width_; out < end; out += table_width_) {
      RotaryRow(position, table_width_, frequencies, out,
                out + table_width_ / 2, magnitude);
      frequencies += table_width_ / 2;
      magnitude = 1.0;
    }
  } else {
    SinusoidalRow(position, width_, factors_.data(), out);
  }
}

}  // namespace tarn
