// The oracle of rg_lru.h: one entry at a time, in double, by definition. It
// shares nothing with the kernel.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::reference {

/// x, p_i, p_r: rows of Lambda.size() entries; begins, kept: [rows] or empty.
struct RgLruProblem {
  std::vector<double> x, p_i, p_r;
  std::vector<double> Lambda, b_i, b_r;
  std::vector<bool> begins, kept;
  double most_slope = 1e300;  // of the root by its square
};

struct RgLruResult {
  std::vector<double> inputs, gates;
};

RgLruResult RgLruGates(const RgLruProblem& p);

/// Gradients in the place of the inputs. The gates of rows that begin or are
/// not kept are constants.
RgLruProblem RgLruGatesBackward(const RgLruProblem& p,
                                const std::vector<double>& grad_inputs,
                                const std::vector<double>& grad_gates);

}  // namespace tarn::reference
