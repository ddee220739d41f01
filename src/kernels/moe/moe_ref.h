// The oracles of router.h and experts.h: one token at a time, in double, by
// definition.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/moe/experts.h"
#include "kernels/moe/router.h"

namespace tarn::reference {

using Doubles = std::vector<double>;

struct Routes {
  std::vector<int64_t> chosen;
  Doubles weights;
};

/// logits [rows, experts].
Routes Route(const RouterOptions& options, int64_t experts,
             const Doubles& logits);

/// The gradient of the logits by the chain rule over the scores.
Doubles RouteBackward(const RouterOptions& options, int64_t experts,
                      const Doubles& logits, const std::vector<int64_t>& chosen,
                      const Doubles& grad_weights);

/// The tensors of ExpertsProblem; weight3 is empty without a gate.
struct ExpertTensors {
  Doubles x, weights, weight1, weight2, weight3;
};

/// y [tokens, d_model]; sizes, chosen and the activation come from `p`.
Doubles Experts(const ExpertsProblem& p, const ExpertTensors& in);

ExpertTensors ExpertsBackward(const ExpertsProblem& p, const ExpertTensors& in,
                              const Doubles& grad_y);

}  // namespace tarn::reference
