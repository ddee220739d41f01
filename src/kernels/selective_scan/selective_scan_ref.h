// Scalar double reference of selective_scan, by definition; shares nothing with
// the kernel. For tests and benchmarks' checks only.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::reference {

/// One sequence, dense. Empty skip weights and an empty state mean zeros.
struct ScanProblem {
  int64_t seq_len = 0, channels = 1, states = 1;
  std::vector<double> inputs, steps;  // [T, D]
  std::vector<double> rates;          // [D, N]
  std::vector<double> keys, queries;  // [T, N]
  std::vector<double> skip;           // [D]
  std::vector<double> state;          // [D, N]
};

struct ScanResult {
  std::vector<double> out, state;  // [T, D], [D, N]
};

/// Each as the member of ScanProblem.
struct ScanGradients {
  std::vector<double> inputs, steps, rates, keys, queries, skip, state;
};

ScanResult ScanForward(const ScanProblem& problem);
ScanGradients ScanBackward(const ScanProblem& problem,
                           const std::vector<double>& grad_out,
                           const std::vector<double>& grad_state);

}  // namespace tarn::reference
