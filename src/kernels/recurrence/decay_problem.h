// One sequence as the references of the gated recurrences take it, in double.
// For tests and benchmarks' checks only.
#pragma once

#include <cmath>
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

  double Decay(int64_t t, int64_t hv, int64_t k) const {
    switch (gate_kind) {
      case Gate::kNone:
        return 1;
      case Gate::kHead:
        return std::exp(gates[hv]);
      case Gate::kToken:
        return std::exp(gates[t * value_heads + hv]);
      case Gate::kChannel:
        return std::exp(gates[(t * value_heads + hv) * d_key + k]);
    }
    return 1;
  }
  int64_t Head(int64_t hv) const { return hv / (value_heads / heads); }
};

struct DecayResult {
  std::vector<double> out;  // [T, HV, V]
  std::vector<double> S;    // after the last token
};

}  // namespace tarn::reference
