// Linear attention of one token, for the layers of a step.
#pragma once

#include "kernels/layer_step/layer_step.h"
#include "kernels/linear_attention/linear_attention.h"

namespace tarn {

/// The self attention of every layer, which advances its state by one token.
class LinearStepAttention final : public StepAttention {
 public:
  /// states: one per layer, [rows, heads, ...]; no S, no z: zeros. All
  /// arguments must outlive this.
  LinearStepAttention(const LinearAttentionOptions& options,
                      const LayerStepCall& call,
                      const LinearAttentionState* states)
      : options_(options), call_(call), states_(states) {}

  void Attend(const LayerStepPart& part,
              const LayerStepRows& rows) const override;

 private:
  LinearAttentionOptions options_;
  const LayerStepCall& call_;
  const LinearAttentionState* states_;
};

}  // namespace tarn
