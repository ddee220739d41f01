// Linear attention of one token, as the layers of a step attend with it.
#pragma once

#include "kernels/layer_step/layer_step.h"
#include "kernels/linear_attention/linear_attention.h"

namespace tarn {

/// The self attention of every layer: goes on from its state by one token.
class LinearStepAttention final : public StepAttention {
 public:
  /// states: one a layer, [rows, heads, ...]; no S, no z: zeros. What is given
  /// must outlive this.
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
