#include "kernels/logistic_mixture/logistic_mixture_ref.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tarn::reference {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double SigmoidSlope(double x) { return Sigmoid(x) * Sigmoid(-x); }
// ln sig(x), also where sig(x) has no double.
double LogSigmoid(double x) { return x < -700 ? x : -std::log1p(std::exp(-x)); }

// ln p and its derivatives in mean and log-scale.
struct Part {
  double log_p, mean, log_scale;
  double p;  // before the rule of 1e-5; NaN at the ends
};

Part PartAt(uint8_t byte, double mean, double log_scale) {
  const bool clamped = log_scale < -7;
  const double t = clamped ? -7 : log_scale;
  const double s = std::exp(t);
  const double y = 2 * byte / 255.0 - 1;
  const double a = (y - mean + 1 / 255.0) / s;
  const double b = (y - mean - 1 / 255.0) / s;
  Part part{0, 0, 0, std::numeric_limits<double>::quiet_NaN()};
  if (byte == 0) {
    part.log_p = LogSigmoid(a);
    part.mean = -Sigmoid(-a) / s;
    part.log_scale = -a * Sigmoid(-a);
  } else if (byte == 255) {
    part.log_p = LogSigmoid(-b);
    part.mean = Sigmoid(b) / s;
    part.log_scale = b * Sigmoid(b);
  } else {
    part.p = Sigmoid(a) - Sigmoid(b);
    if (part.p > 1e-5) {
      part.log_p = std::log(part.p);
      part.mean = -(SigmoidSlope(a) - SigmoidSlope(b)) / s / part.p;
      part.log_scale = -(a * SigmoidSlope(a) - b * SigmoidSlope(b)) / part.p;
    } else {
      // The logistic density is sig(m) sig(-m) / s.
      const double m = (y - mean) / s;
      part.log_p = LogSigmoid(m) + LogSigmoid(-m) - t - std::log(127.5);
      part.mean = (2 * Sigmoid(m) - 1) / s;
      part.log_scale = m * (2 * Sigmoid(m) - 1) - 1;
    }
  }
  if (clamped) part.log_scale = 0;
  return part;
}

double LogSumExp(const std::vector<double>& x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double v : x) sum += std::exp(v - largest);
  return largest + std::log(sum);
}

}  // namespace

LogisticMixtureRow LogisticMixture(const std::vector<double>& params,
                                   uint8_t byte) {
  const size_t k = params.size() / 3;
  const std::vector<double> logits(params.begin(), params.begin() + k);
  std::vector<Part> parts;
  std::vector<double> joint;
  for (size_t i = 0; i < k; ++i) {
    parts.push_back(PartAt(byte, params[k + i], params[2 * k + i]));
    joint.push_back(logits[i] + parts[i].log_p);
  }
  const double log_weights = LogSumExp(logits), log_joint = LogSumExp(joint);
  LogisticMixtureRow row;
  row.loss = log_weights - log_joint;
  row.gradient.resize(3 * k);
  row.threshold_distance = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < k; ++i) {
    const double posterior = std::exp(joint[i] - log_joint);
    row.gradient[i] = std::exp(logits[i] - log_weights) - posterior;
    row.gradient[k + i] = -posterior * parts[i].mean;
    row.gradient[2 * k + i] = -posterior * parts[i].log_scale;
    if (std::isnan(parts[i].p)) continue;
    const double distance =
        parts[i].p > 0 ? std::fabs(std::log(parts[i].p) - std::log(1e-5))
                       : std::numeric_limits<double>::infinity();
    row.threshold_distance = std::min(row.threshold_distance, distance);
  }
  return row;
}

}  // namespace tarn::reference
