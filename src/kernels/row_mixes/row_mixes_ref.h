// The oracle of row_mixes.h: one entry at a time, in double.
#pragma once

#include <vector>

namespace tarn::reference {

/// x and delta [rows, width], each of the weights [width].
struct RowMixProblem {
  std::vector<double> x, delta;
  std::vector<std::vector<double>> weights;
};

std::vector<std::vector<double>> RowMixes(const RowMixProblem& p);

/// The gradients in the places of what they belong to.
RowMixProblem RowMixesBackward(
    const RowMixProblem& p, const std::vector<std::vector<double>>& grad_outs);

}  // namespace tarn::reference
