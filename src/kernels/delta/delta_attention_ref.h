// Scalar double reference of delta_attention: the recurrence token by token,
// and its gradient by reverse differentiation of that loop. Shares nothing with
// the kernel. For tests and benchmarks' checks only.
#pragma once

#include <vector>

#include "kernels/recurrence/decay_problem.h"

namespace tarn::reference {

/// The tensors of a DecayProblem (without a bonus) and the betas [T, HV].
struct DeltaProblem {
  DecayProblem inputs;
  std::vector<double> betas;
};

struct DeltaGradients {
  std::vector<double> queries, keys, values, gates, betas, S;
};

DecayResult DeltaForward(const DeltaProblem& problem);

/// grad_S: of the final state; empty means zero.
DeltaGradients DeltaBackward(const DeltaProblem& problem,
                             const std::vector<double>& grad_out,
                             const std::vector<double>& grad_S);

}  // namespace tarn::reference
