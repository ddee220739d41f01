// The oracle of logistic_mixture.h: one row at a time, in double, straight from
// the definition with differences of sigmoids.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::reference {

struct LogisticMixtureRow {
  double loss = 0;
  std::vector<double> gradient;  // [3 K]
  // The distance of ln p_k from ln 1e-5, where the formula changes: the least
  // over all components that count, infinity for the bytes at the ends.
  double threshold_distance = 0;
};

/// params: [3 K], logits, means, log-scales.
LogisticMixtureRow LogisticMixture(const std::vector<double>& params,
                                   uint8_t byte);

}  // namespace tarn::reference
