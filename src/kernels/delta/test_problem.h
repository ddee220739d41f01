// Random problems of the delta rule for its tests.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/delta/delta_attention_ref.h"
#include "kernels/recurrence/test_problem.h"

namespace tarn::testing {

using reference::DeltaProblem;

// Betas in (0, 1), or anywhere up to 2 with some 0 and some negative.
enum class BetaStyle { kInside, kOutside };

// Unit keys, without which a delta rule of 50 channels grows without bound.
inline DeltaProblem MakeDeltaProblem(const RecurrentShape& shape, Gate gate,
                                     uint64_t seed, DType dtype = DType::kF32,
                                     const GateStyle& style = {},
                                     bool state = true,
                                     BetaStyle betas = BetaStyle::kInside) {
  DeltaProblem problem;
  problem.inputs = MakeDecayProblem(shape, gate, seed, dtype, style, state);
  DecayProblem& p = problem.inputs;
  for (int64_t row = 0; row < p.seq_len * p.heads; ++row) {
    double sum = 0;
    for (int64_t k = 0; k < p.d_key; ++k) {
      sum += p.keys[row * p.d_key + k] * p.keys[row * p.d_key + k];
    }
    for (int64_t k = 0; k < p.d_key; ++k) {
      double& x = p.keys[row * p.d_key + k];
      x = Round(x / std::sqrt(sum + 1e-6), dtype);
    }
  }
  std::mt19937_64 rng(seed + 5000);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  for (int64_t i = 0; i < p.seq_len * p.value_heads; ++i) {
    double beta = uniform(rng);
    if (betas == BetaStyle::kOutside) {
      const uint64_t draw = rng() % 8;
      beta = draw == 0 ? 0.0 : draw == 1 ? 2.0 : draw == 2 ? -0.1 : 2 * beta;
    }
    problem.betas.push_back(static_cast<float>(beta));
  }
  return problem;
}

inline std::vector<DecayProblem> InputsOf(
    const std::vector<DeltaProblem>& problems) {
  std::vector<DecayProblem> inputs;
  for (const DeltaProblem& p : problems) inputs.push_back(p.inputs);
  return inputs;
}

inline std::vector<std::vector<double>> BetasOf(
    const std::vector<DeltaProblem>& problems) {
  std::vector<std::vector<double>> betas;
  for (const DeltaProblem& p : problems) betas.push_back(p.betas);
  return betas;
}

// The first `tokens` of a problem, or those from `tokens` on.
inline DeltaProblem Cut(const DeltaProblem& problem, int64_t tokens,
                        bool after) {
  DeltaProblem part = problem;
  DecayProblem& p = part.inputs;
  const int64_t length = p.seq_len;
  const auto cut = [&](std::vector<double>& x, int64_t width) {
    if (after) {
      x.erase(x.begin(), x.begin() + tokens * width);
    } else {
      x.resize(tokens * width);
    }
  };
  p.seq_len = after ? length - tokens : tokens;
  cut(p.queries, p.heads * p.d_key);
  cut(p.keys, p.heads * p.d_key);
  cut(p.values, p.value_heads * p.d_value);
  cut(part.betas, p.value_heads);
  if (p.gate_kind == Gate::kToken) cut(p.gates, p.value_heads);
  if (p.gate_kind == Gate::kChannel) cut(p.gates, p.value_heads * p.d_key);
  return part;
}

}  // namespace tarn::testing
