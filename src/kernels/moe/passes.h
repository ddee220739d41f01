// The passes over rows between the grouped products of experts.h.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "kernels/moe/experts.h"
#include "kernels/moe/groups.h"

namespace tarn {

/// rows[r] = x of the token of row r.
void GatherTokens(const ExpertsProblem& p, const ExpertGroups& groups,
                  const float* x, float* rows, Executor& executor);

/// hidden = act(product1) * product3, or act(product1) where product3 is null;
/// may be product1. [rows, width].
void ExpertActivationRows(ExpertActivation activation, int64_t rows,
                          int64_t width, const float* product1,
                          const float* product3, float* hidden,
                          Executor& executor);

/// y_t = sum_j weights_tj rows[place of (t, j)] in the order of j; no weights:
/// ones. rows [assignments, width], y [tokens, width].
void CombineExperts(const ExpertsProblem& p, const ExpertGroups& groups,
                    const float* weights, const float* rows, float* y,
                    Executor& executor);

/// One expert's part of such a sum, in any columns: y = weight row where it is
/// the first, else y += weight row.
void AddExpertRow(const float* row, float weight, bool first, int64_t width,
                  float* y);

/// The gradient of the hidden rows. `back` [assignments, d_ff] holds
/// dy W2 without the weights w and becomes the gradient of product1; hidden
/// becomes w h, grad_three that of product3 (null without a gate), and
/// grad_weights[t, j] = h . back.
struct HiddenGradient {
  const float* product1 = nullptr;
  const float* product3 = nullptr;
  float* back = nullptr;
  float* hidden = nullptr;
  float* grad_three = nullptr;
  float* grad_weights = nullptr;
};
void ExpertHiddenBackward(const ExpertsProblem& p, const ExpertGroups& groups,
                          const HiddenGradient& g, Executor& executor);

/// The index part of a call's workspace, cut into the groups.
ExpertGroups GroupsIn(const ExpertsProblem& p, int64_t* indices);

/// Throws what ExpertsForward documents, the chosen indices excepted.
void CheckExperts(const ExpertsProblem& p);

}  // namespace tarn
