// The oracle of cross_entropy.h: by definition, in double.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cross_entropy/cross_entropy.h"

namespace tarn::reference {

struct CrossEntropyProblem {
  CrossEntropyOptions options;
  int64_t classes = 1;
  std::vector<double> logits;  // [rows, classes]
  std::vector<int64_t> targets;
};

struct CrossEntropyLosses {
  std::vector<double> losses, squares;
};
CrossEntropyLosses CrossEntropy(const CrossEntropyProblem& p);

/// By the logits.
std::vector<double> CrossEntropyBackward(const CrossEntropyProblem& p,
                                         const std::vector<double>& grad);

}  // namespace tarn::reference
