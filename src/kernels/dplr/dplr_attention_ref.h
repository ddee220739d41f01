// Scalar double reference of dplr_attention: the recurrence token by token, and
// its gradient by reverse differentiation of that loop. Shares nothing with the
// kernel. For tests and benchmarks' checks only.
#pragma once

#include <vector>

#include "kernels/recurrence/decay_problem.h"

namespace tarn::reference {

/// The tensors of a DecayProblem (without a bonus) with value_heads = heads,
/// and the low-rank pair, each [T, H, K].
struct DplrProblem {
  DecayProblem inputs;
  std::vector<double> reads, writes;
};

struct DplrGradients {
  std::vector<double> queries, keys, values, gates, reads, writes, S;
};

DecayResult DplrForward(const DplrProblem& problem);

/// grad_S: of the final state; empty means zero.
DplrGradients DplrBackward(const DplrProblem& problem,
                           const std::vector<double>& grad_out,
                           const std::vector<double>& grad_S);

}  // namespace tarn::reference
