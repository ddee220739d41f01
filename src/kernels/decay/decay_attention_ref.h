// Scalar double reference of decay_attention: the recurrence token by token,
// and its gradient by reverse differentiation of that loop. Shares nothing with
// the kernel. For tests and benchmarks' checks only.
#pragma once

#include <vector>

#include "kernels/recurrence/decay_problem.h"

namespace tarn::reference {

struct DecayGradients {
  std::vector<double> queries, keys, values, gates, bonus, S;
};

DecayResult DecayForward(const DecayProblem& problem);

/// grad_S: of the final state; empty means zero.
DecayGradients DecayBackward(const DecayProblem& problem,
                             const std::vector<double>& grad_out,
                             const std::vector<double>& grad_S);

}  // namespace tarn::reference
