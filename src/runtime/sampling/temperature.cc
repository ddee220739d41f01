#include "runtime/sampling/temperature.h"

#include <algorithm>
#include <cmath>

namespace tarn {
namespace {

// The entropy over log(candidates), in [0, 1]. At least two candidates.
double EntropyFraction(Candidates& candidates) {
  const double total = candidates.Total();
  double entropy = std::log(total);
  for (const Candidate& c : candidates.list()) {
    const double weight = candidates.Weight(c);
    if (weight > 0) entropy -= weight / total * candidates.Relative(c);
  }
  const auto n = static_cast<double>(candidates.list().size());
  return std::clamp(entropy / std::log(n), 0.0, 1.0);
}

}  // namespace

void DivideByTemperature(Candidates& candidates,
                         const SamplerOptions& options) {
  double temperature = options.temperature;
  if (options.dynatemp_range > 0) {
    if (candidates.list().size() < 2) return;
    const double low = std::max(0.0, temperature - options.dynatemp_range);
    const double high = temperature + options.dynatemp_range;
    temperature = low + (high - low) * std::pow(EntropyFraction(candidates),
                                                options.dynatemp_exponent);
    if (temperature <= 0) {
      candidates.KeepTop(1);
      return;
    }
  }
  candidates.SetTemperature(temperature);
}

}  // namespace tarn
