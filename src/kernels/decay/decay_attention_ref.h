// Scalar double reference of decay_attention: the recurrence token by token,
// and its gradient by reverse differentiation of that loop. Shares nothing with
// the kernel. For tests and benchmarks' checks only.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::reference {

/// One sequence, dense, time first. Gates are empty, [HV], [T, HV] or
/// [T, HV, K] as gate_kind says.
struct DecayProblem {
  enum class Gate { kNone, kHead, kToken, kChannel };
  int64_t seq_len = 0, heads = 1, value_heads = 1, d_key = 1, d_value = 1;
  double scale = 1;
  Gate gate_kind = Gate::kNone;
  std::vector<double> queries, keys, values;  // [T, H, K] twice, [T, HV, V]
  std::vector<double> gates;
  std::vector<double> bonus;  // [HV, K]; empty: the read is inclusive
  std::vector<double> S;      // [HV, K, V]; empty: zeros

  double Decay(int64_t t, int64_t hv, int64_t k) const;
  int64_t Head(int64_t hv) const { return hv / (value_heads / heads); }
};

struct DecayResult {
  std::vector<double> out;  // [T, HV, V]
  std::vector<double> S;    // after the last token
};

struct DecayGradients {
  std::vector<double> queries, keys, values, gates, bonus, S;
};

DecayResult DecayForward(const DecayProblem& problem);

/// grad_S: of the final state; empty means zero.
DecayGradients DecayBackward(const DecayProblem& problem,
                             const std::vector<double>& grad_out,
                             const std::vector<double>& grad_S);

}  // namespace tarn::reference
