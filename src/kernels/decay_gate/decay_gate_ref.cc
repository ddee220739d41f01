#include "kernels/decay_gate/decay_gate_ref.h"

#include <cmath>

namespace tarn::reference {
namespace {

double GateSigma(double x) { return 1 / (1 + std::exp(-x)); }
double GateSoftplus(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
double RateAt(const DecayGateProblem& p, size_t at) {
  return p.log_rates.empty() ? 1 : std::exp(p.log_rates[at]);
}

}  // namespace

DecayGateResult DecayGate(const DecayGateProblem& p) {
  DecayGateResult out;
  for (size_t i = 0; i < p.x.size(); ++i) {
    const size_t at = i % p.bias.size();
    const double x = p.x[i], b = p.bias[at], u = x + b, rate = RateAt(p, at);
    switch (p.form) {
      case GateForm::kSoftplus:
        out.second.push_back(
            std::fmax(p.least, std::fmin(GateSoftplus(u), p.most)));
        out.gates.push_back(-rate * out.second.back());
        break;
      case GateForm::kLogSigmoid:
        out.gates.push_back(-p.scale * GateSoftplus(-u));
        break;
      case GateForm::kBounded:
        // For b = 0 the logarithm of sigma, which itself may be 0; near 1 the
        // logarithm of what is missing to 1.
        out.gates.push_back(b == 0 ? -GateSoftplus(-x)
                            : (1 - b) * GateSigma(-x) < 0.5
                                ? std::log1p(-(1 - b) * GateSigma(-x))
                                : std::log(b + (1 - b) * GateSigma(x)));
        out.second.push_back((1 - b) * GateSigma(-x));
        break;
      case GateForm::kExponential:
        out.gates.push_back(-std::exp(u));
        break;
      case GateForm::kSigmoid:
        out.gates.push_back(-p.scale * GateSigma(rate * u));
        break;
    }
  }
  return out;
}

DecayGateProblem DecayGateBackward(const DecayGateProblem& p,
                                   const std::vector<double>& grad_gates,
                                   const std::vector<double>& grad_second) {
  DecayGateProblem d = p;
  d.bias.assign(p.bias.size(), 0);
  d.log_rates.assign(p.log_rates.size(), 0);
  for (size_t i = 0; i < p.x.size(); ++i) {
    const size_t at = i % p.bias.size();
    const double x = p.x[i], b = p.bias[at], u = x + b, rate = RateAt(p, at);
    const double dg = grad_gates[i];
    const double ds = grad_second.empty() ? 0 : grad_second[i];
    double by_x = 0, by_bias = 0, by_rate = 0;
    switch (p.form) {
      case GateForm::kSoftplus:
        by_rate =
            -dg * rate * std::fmax(p.least, std::fmin(GateSoftplus(u), p.most));
        if (GateSoftplus(u) < p.least || GateSoftplus(u) > p.most) break;
        by_x = by_bias = (ds - rate * dg) * GateSigma(u);
        break;
      case GateForm::kLogSigmoid:
        by_x = by_bias = dg * p.scale * GateSigma(-u);
        break;
      case GateForm::kBounded: {
        const double slope = (1 - b) * GateSigma(x) * GateSigma(-x);
        const double over_f =
            b == 0 ? 1 + std::exp(-x) : 1 / (b + (1 - b) * GateSigma(x));
        by_x = slope * (dg * over_f - ds);
        by_bias = GateSigma(-x) * (dg * over_f - ds);
        break;
      }
      case GateForm::kExponential:
        by_x = by_bias = -dg * std::exp(u);
        break;
      case GateForm::kSigmoid: {
        const double z = rate * u;
        const double dz = -dg * p.scale * GateSigma(z) * GateSigma(-z);
        by_x = by_bias = rate * dz;
        by_rate = z * dz;
        break;
      }
    }
    d.x[i] = by_x;
    d.bias[at] += by_bias;
    if (!d.log_rates.empty()) d.log_rates[at] += by_rate;
  }
  return d;
}

}  // namespace tarn::reference
