// Rows of computed positions, sinusoidal and rotary, kept for sequences at the
// same position and for those that reach it later.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/model_config.h"
#include "kernels/aligned_buffer.h"

namespace tarn {

/// A cache with one place for each position modulo its size: a batch of
/// sequences at one position computes a row once. A block calls Claim on one
/// thread, then Fill for what Claim returned, then Get for all rows, both on
/// any threads. Nothing allocates after construction.
class PositionRows {
 public:
  explicit PositionRows(const ModelConfig& config);

  /// Floats of a row: the sinusoidal entries, or [d_key / 2 cosines | d_key / 2
  /// sines] of rotary positions, the model's and then those of each of
  /// config.rotary_bases; 0 when positions are not computed.
  int64_t width() const { return width_; }
  /// Takes places for the positions (>= 0) that have none; returns those to
  /// Fill. Where two positions share a place, the first keeps it.
  std::span<const int64_t> Claim(std::span<const int64_t> positions);
  void Fill(int64_t position);
  /// Frees the places that the last Claim took: not all were filled.
  void Unclaim();
  /// Writes the row to out [width()]; computes it when it has no place. The
  /// same bits either way, those of kernels/positions/positions.h.
  void Get(int64_t position, float* out) const;

 private:
  void Compute(int64_t position, float* out) const;

  bool rotary_ = false;
  int64_t width_ = 0;
  int64_t table_width_ = 0;       // of one of the rotary tables in a row
  std::vector<double> factors_;   // periods or frequencies, table by table
  double magnitude_ = 1.0;        // of cosines and sines of the first table
  std::vector<int64_t> kept_;     // position at each place, -1: none
  std::vector<int64_t> claimed_;  // number of the call that took the place
  std::vector<int64_t> to_fill_;
  int64_t call_ = 0;
  AlignedBuffer<float> rows_;  // [places, width]
};

}  // namespace tarn
