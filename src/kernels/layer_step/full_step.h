// Softmax attention of one token over all keys and values so far, for the
// layers of a step.
#pragma once

#include "kernels/layer_step/layer_step.h"

namespace tarn {

/// A layer's cache, with room for the token: keys [rows, seq_len, heads,
/// d_key], values [rows, seq_len, heads, d_value], dense except for the strides
/// between rows.
struct FullStepState {
  float *keys = nullptr, *values = nullptr;
  int64_t key_stride = 0, value_stride = 0;  // from row to row, in floats
  int64_t seq_len = 0;                       // with the token, at least 1
};

/// The self attention of every layer: writes the token's key and value as the
/// last of the cache and attends to all of it.
class FullStepAttention final : public StepAttention {
 public:
  /// states: one per layer. scores: scratch, [width of the team, longest
  /// seq_len]. All arguments must outlive this.
  FullStepAttention(float scale, const LayerStepCall& call,
                    const FullStepState* states, float* scores);

  void Attend(const LayerStepPart& part,
              const LayerStepRows& rows) const override;

 private:
  float scale_;
  const LayerStepCall& call_;
  const FullStepState* states_;
  float* scores_;
  int64_t longest_ = 0;
};

}  // namespace tarn
