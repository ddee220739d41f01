#include "kernels/cross_entropy/cross_entropy_ref.h"

#include <algorithm>
#include <cmath>

namespace tarn::reference {
namespace {

std::vector<double> MappedRow(const CrossEntropyProblem& p, size_t row) {
  std::vector<double> z;
  for (int64_t i = 0; i < p.classes; ++i) {
    double v = p.options.scale * p.logits[row * p.classes + i];
    if (p.options.cap != 0) v = p.options.cap * std::tanh(v / p.options.cap);
    z.push_back(v);
  }
  return z;
}

double LogSumExp(const std::vector<double>& z) {
  double most = z[0], sum = 0;
  for (double v : z) most = std::max(most, v);
  for (double v : z) sum += std::exp(v - most);
  return most + std::log(sum);
}

}  // namespace

CrossEntropyLosses CrossEntropy(const CrossEntropyProblem& p) {
  CrossEntropyLosses found;
  const double e = p.options.smoothing;
  for (size_t row = 0; row < p.targets.size(); ++row) {
    if (p.targets[row] == p.options.ignored) {
      found.losses.push_back(0);
      found.squares.push_back(0);
      continue;
    }
    const std::vector<double> z = MappedRow(p, row);
    const double lse = LogSumExp(z);
    double loss = (1 - e) * (lse - z[p.targets[row]]);
    for (double v : z) loss += e * (lse - v) / static_cast<double>(p.classes);
    found.squares.push_back(p.options.square_scale * lse * lse);
    found.losses.push_back(loss + found.squares.back());
  }
  return found;
}

std::vector<double> CrossEntropyBackward(const CrossEntropyProblem& p,
                                         const std::vector<double>& grad) {
  std::vector<double> out;
  const double e = p.options.smoothing, c = p.options.cap;
  for (size_t row = 0; row < p.targets.size(); ++row) {
    const std::vector<double> z = MappedRow(p, row);
    const double lse = LogSumExp(z);
    for (int64_t i = 0; i < p.classes; ++i) {
      const double own = i == p.targets[row] ? 1 - e : 0;
      const double by_z =
          (1 + 2 * p.options.square_scale * lse) * std::exp(z[i] - lse) - own -
          e / static_cast<double>(p.classes);
      const double slope = c == 0 ? 1 : 1 - z[i] * z[i] / (c * c);
      const bool kept = p.targets[row] != p.options.ignored;
      out.push_back(kept ? grad[row] * by_z * slope * p.options.scale : 0);
    }
  }
  return out;
}

}  // namespace tarn::reference
