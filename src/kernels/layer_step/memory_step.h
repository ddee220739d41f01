// Attention of one token to a memory that does not change, for the layers of a
// decoder's step: linear attention reads one matrix, full attention all keys
// and values.
#pragma once

#include "kernels/layer_step/layer_step.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/softmax_attention/softmax_attention.h"

namespace tarn {

/// A layer's memory. Linear: S [rows, heads, d_key, d_value], z [rows, heads,
/// d_key], dense. Full, if keys are given: those of row r and head h are at
/// keys + r * key_row + h * key_head, and so on; cache has the rest.
struct MemoryStepState {
  const float *S = nullptr, *z = nullptr;
  KeyValueCache cache;
  int64_t key_row = 0, key_head = 0, value_row = 0, value_head = 0;
};

/// The self attention is delegated; the memory is read here.
class MemoryStepAttention final : public StepAttention {
 public:
  /// memories: one per layer. scores: scratch, [width of the team, longest],
  /// for full attention. All arguments must outlive this.
  MemoryStepAttention(const StepAttention& self, const LayerStepCall& call,
                      const LinearAttentionOptions& options, float scale,
                      const MemoryStepState* memories, float* scores,
                      int64_t longest)
      : self_(self),
        call_(call),
        options_(options),
        scale_(scale),
        memories_(memories),
        scores_(scores),
        longest_(longest) {}

  void Attend(const LayerStepPart& part,
              const LayerStepRows& rows) const override;

 private:
  void Read(const MemoryStepState& memory, const LayerStepPart& part,
            const LayerStepRows& rows, int64_t row) const;

  const StepAttention& self_;
  const LayerStepCall& call_;
  LinearAttentionOptions options_;
  float scale_;
  const MemoryStepState* memories_;
  float* scores_;
  int64_t longest_;
};

}  // namespace tarn
