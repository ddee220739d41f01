// The products of a step, divided among the shares of a team: a share has the
// same piece of a map at every token, so that its weights stay in one core's
// cache.
#pragma once

#include <cstdint>

#include "kernels/layer_step/layer_step.h"

namespace tarn::layer_step {

struct Range {
  int64_t begin = 0, end = 0;
};

/// The part of `count` items that belongs to a share.
inline Range Part(int64_t count, int64_t share, int64_t width) {
  return {count * share / width, count * (share + 1) / width};
}

/// What a share computes of a map's result: these rows of these outputs.
struct Piece {
  Range rows, outputs;
  bool empty() const {
    return rows.begin == rows.end || outputs.begin == outputs.end;
  }
};

/// y [rows, outputs] = x [rows, inputs] W^T + b, piece by piece. Few rows read
/// weights in place, more rows copy them into panels. A value; thread-safe if
/// shares differ.
class Products {
 public:
  /// workspace: Floats(rows) for each of `width` shares, at a multiple of 64
  /// bytes.
  Products(int64_t rows, int64_t width, float* workspace)
      : rows_(rows), width_(width), workspace_(workspace) {}

  static int64_t Floats(int64_t rows);

  Piece PieceOf(int64_t outputs, int64_t share) const;

  /// Does nothing where the map has no weight.
  void Run(const float* x, int64_t inputs, const LayerStepMap& map,
           int64_t outputs, const Piece& piece, int64_t share, float* y) const;

 private:
  int64_t rows_, width_;
  float* workspace_;
};

}  // namespace tarn::layer_step
