// Scalar double reference of elementwise_recurrence, by definition; shares
// nothing with the kernel. For tests and benchmarks' checks only.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::reference {

/// One sequence, dense. An empty state means zeros.
struct ElementwiseProblem {
  int64_t seq_len = 0, channels = 1;
  std::vector<double> inputs, gates;  // [T, D]
  std::vector<double> state;          // [D]
};

struct ElementwiseResult {
  std::vector<double> out, state;  // [T, D], [D]
};

struct ElementwiseGradients {
  std::vector<double> inputs, gates, state;
};

ElementwiseResult ElementwiseForward(const ElementwiseProblem& problem);

/// grad_state may be empty: nothing flows in from the final state.
ElementwiseGradients ElementwiseBackward(const ElementwiseProblem& problem,
                                         const std::vector<double>& grad_out,
                                         const std::vector<double>& grad_state);

}  // namespace tarn::reference
