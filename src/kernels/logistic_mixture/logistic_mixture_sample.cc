// Draws are scalar and in double: a byte takes a whole step of a model anyway.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "kernels/logistic_mixture/logistic_mixture.h"

namespace tarn {
namespace {

constexpr double kMinLogScale = -7;
constexpr double kMaxTemperature = 100;

// The largest logit; throws where a row has no distribution.
double CheckRow(const float* params, int64_t k) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < k; ++i) {
    const float logit = params[i], mean = params[k + i];
    const float log_scale = params[2 * k + i];
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    if (!(logit < kInfinity && std::fabs(mean) < kInfinity &&
          log_scale < kInfinity)) {
      throw NumericError(
          "logistic_mixture: params",
          "numbers (a logit or log-scale may be -inf)",
          StrCat(logit, ", ", mean, ", ", log_scale, " of component ", i));
    }
    largest = std::max<double>(largest, logit);
  }
  if (std::isinf(largest)) {
    throw NumericError("logistic_mixture: params", "a logit above -inf",
                       "none");
  }
  return largest;
}

// The component where the sum of weights passes `share` of the whole.
int64_t Component(const float* logits, int64_t k, double largest,
                  double temperature, double share) {
  if (temperature == 0) {
    return std::max_element(logits, logits + k) - logits;
  }
  const auto weight = [&](int64_t i) {
    return std::exp((logits[i] - largest) / temperature);
  };
  double total = 0;
  for (int64_t i = 0; i < k; ++i) total += weight(i);
  double rest = share * total;
  int64_t last = 0;  // with a weight: rounding may leave a rest after it
  for (int64_t i = 0; i < k; ++i) {
    const double w = weight(i);
    if (w == 0) continue;
    last = i;
    if (rest < w) break;
    rest -= w;
  }
  return last;
}

}  // namespace

uint8_t LogisticMixtureSample(const float* params, int64_t k, Rng& rng,
                              double temperature) {
  if (k < 1) {
    throw ShapeError("logistic_mixture: k", "at least 1", StrCat(k));
  }
  if (params == nullptr) {
    throw ArgumentError("logistic_mixture: params", "data", "a null pointer");
  }
  if (!(temperature >= 0 && temperature <= kMaxTemperature)) {
    throw ArgumentError("logistic_mixture: temperature",
                        StrCat("0 to ", kMaxTemperature), StrCat(temperature));
  }
  const double largest = CheckRow(params, k);
  const double share = rng.Uniform();
  const double u = rng.Uniform();
  const int64_t i = Component(params, k, largest, temperature, share);
  double x = params[k + i];
  if (temperature > 0) {
    const double log_scale = std::max<double>(params[2 * k + i], kMinLogScale);
    // u = 0 is the far end of the left tail, whatever the scale.
    x = u == 0 ? -1
               : x + temperature * std::exp(log_scale) *
                         (std::log(u) - std::log1p(-u));
  }
  return static_cast<uint8_t>(
      std::lround((std::clamp(x, -1.0, 1.0) + 1) * 127.5));
}

}  // namespace tarn
