#include "kernels/moe/moe_ref.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tarn::reference {
namespace {

double RouteSigma(double x) { return 1 / (1 + std::exp(-x)); }

// The score of every expert and the sum that normalised weights divide by.
Doubles Scores(const RouterOptions& options, const double* l, int64_t experts) {
  Doubles s(experts);
  double sum = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const bool sigmoid = options.scores == RouterScores::kSigmoid;
    s[e] = sigmoid ? RouteSigma(l[e]) : std::exp(l[e]);
    sum += s[e];
  }
  if (options.scores == RouterScores::kSoftmax) {
    for (double& one : s) one /= sum;
  }
  return s;
}

double Curve(ExpertActivation activation, double x) {
  switch (activation) {
    case ExpertActivation::kSilu:
      return x * RouteSigma(x);
    case ExpertActivation::kGelu:
      return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case ExpertActivation::kGeluTanh:
      return x / 2 *
             (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) *
                            (x + 0.044715 * x * x * x)));
    case ExpertActivation::kRelu:
      return std::max(x, 0.0);
    case ExpertActivation::kRelu2:
      return x > 0 ? x * x : 0;
  }
  return 0;
}

double Slope(ExpertActivation activation, double x) {
  const double pi = std::acos(-1.0);
  switch (activation) {
    case ExpertActivation::kSilu:
      return RouteSigma(x) * (1 + x * RouteSigma(-x));
    case ExpertActivation::kGelu:
      return std::erfc(-x / std::sqrt(2.0)) / 2 +
             x * std::exp(-x * x / 2) / std::sqrt(2 * pi);
    case ExpertActivation::kGeluTanh: {
      const double root = std::sqrt(2 / pi);
      const double t = std::tanh(root * (x + 0.044715 * x * x * x));
      return (1 + t) / 2 +
             x / 2 * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
    }
    case ExpertActivation::kRelu:
      return x > 0 ? 1 : 0;
    case ExpertActivation::kRelu2:
      return x > 0 ? 2 * x : 0;
  }
  return 0;
}

// weight [rows, columns] of expert e times x.
Doubles Times(const Doubles& weight, int64_t e, int64_t rows, int64_t columns,
              const double* x) {
  Doubles y(rows, 0.0);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      y[i] += weight[(e * rows + i) * columns + j] * x[j];
    }
  }
  return y;
}

}  // namespace

Routes Route(const RouterOptions& options, int64_t experts,
             const Doubles& logits) {
  Routes out;
  const int64_t rows = static_cast<int64_t>(logits.size()) / experts;
  for (int64_t t = 0; t < rows; ++t) {
    const double* l = logits.data() + t * experts;
    std::vector<int64_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    const Doubles s = Scores(options, l, experts);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      if (std::isnan(l[a]) || std::isnan(l[b])) {
        return std::isnan(l[a]) && !std::isnan(l[b]);
      }
      if (options.bias != nullptr) {
        return s[a] + options.bias[a] > s[b] + options.bias[b];
      }
      return l[a] > l[b];
    });
    double sum = options.scores == RouterScores::kSigmoid ? 1e-20 : 0;
    for (int64_t j = 0; j < options.top_k; ++j) sum += s[order[j]];
    for (int64_t j = 0; j < options.top_k; ++j) {
      out.chosen.push_back(order[j]);
      out.weights.push_back(options.scale * s[order[j]] /
                            (options.normalize ? sum : 1));
    }
  }
  return out;
}

Doubles RouteBackward(const RouterOptions& options, int64_t experts,
                      const Doubles& logits, const std::vector<int64_t>& chosen,
                      const Doubles& grad_weights) {
  Doubles out(logits.size(), 0.0);
  const int64_t rows = static_cast<int64_t>(logits.size()) / experts;
  const int64_t k = options.top_k;
  for (int64_t t = 0; t < rows; ++t) {
    const double* l = logits.data() + t * experts;
    const Doubles s = Scores(options, l, experts);
    double sum = options.scores == RouterScores::kSigmoid ? 1e-20 : 0, dot = 0;
    for (int64_t j = 0; j < k; ++j) {
      sum += s[chosen[t * k + j]];
      dot += grad_weights[t * k + j] * s[chosen[t * k + j]];
    }
    Doubles ds(experts, 0.0);  // gradient of the scores
    for (int64_t j = 0; j < k; ++j) {
      const double g = grad_weights[t * k + j];
      ds[chosen[t * k + j]] =
          options.scale * (options.normalize ? (g - dot / sum) / sum : g);
    }
    double mean = 0;
    for (int64_t e = 0; e < experts; ++e) mean += ds[e] * s[e];
    for (int64_t e = 0; e < experts; ++e) {
      out[t * experts + e] = options.scores == RouterScores::kSigmoid
                                 ? ds[e] * s[e] * (1 - s[e])
                                 : s[e] * (ds[e] - mean);
    }
  }
  return out;
}

Doubles Experts(const ExpertsProblem& p, const ExpertTensors& in) {
  Doubles y(p.tokens * p.d_model, 0.0);
  for (int64_t a = 0; a < p.tokens * p.top_k; ++a) {
    const int64_t t = a / p.top_k, e = p.chosen[a];
    const double* x = in.x.data() + t * p.d_model;
    const Doubles one = Times(in.weight1, e, p.d_ff, p.d_model, x);
    Doubles hidden(p.d_ff, 1.0);
    if (!in.weight3.empty()) {
      hidden = Times(in.weight3, e, p.d_ff, p.d_model, x);
    }
    for (int64_t f = 0; f < p.d_ff; ++f) {
      hidden[f] *= Curve(p.activation, one[f]);
    }
    const Doubles out = Times(in.weight2, e, p.d_model, p.d_ff, hidden.data());
    for (int64_t d = 0; d < p.d_model; ++d) {
      y[t * p.d_model + d] += in.weights[a] * out[d];
    }
  }
  return y;
}

ExpertTensors ExpertsBackward(const ExpertsProblem& p, const ExpertTensors& in,
                              const Doubles& grad_y) {
  const int64_t d_model = p.d_model, d_ff = p.d_ff;
  ExpertTensors g;
  for (auto member :
       {&ExpertTensors::x, &ExpertTensors::weights, &ExpertTensors::weight1,
        &ExpertTensors::weight2, &ExpertTensors::weight3}) {
    (g.*member).assign((in.*member).size(), 0.0);
  }
  const bool gated = !in.weight3.empty();
  for (int64_t a = 0; a < p.tokens * p.top_k; ++a) {
    const int64_t t = a / p.top_k, e = p.chosen[a];
    const double* x = in.x.data() + t * d_model;
    const double* dy = grad_y.data() + t * d_model;
    const Doubles one = Times(in.weight1, e, d_ff, d_model, x);
    const Doubles three =
        gated ? Times(in.weight3, e, d_ff, d_model, x) : Doubles(d_ff, 1.0);
    for (int64_t f = 0; f < d_ff; ++f) {
      const double curve = Curve(p.activation, one[f]);
      const double hidden = curve * three[f];
      double back = 0;  // of hidden, without the expert's weight
      for (int64_t d = 0; d < d_model; ++d) {
        const int64_t at = (e * d_model + d) * d_ff + f;
        back += in.weight2[at] * dy[d];
        g.weight2[at] += in.weights[a] * hidden * dy[d];
      }
      g.weights[a] += back * hidden;
      const double d_three = in.weights[a] * back * curve;
      const double d_one =
          in.weights[a] * back * three[f] * Slope(p.activation, one[f]);
      for (int64_t d = 0; d < d_model; ++d) {
        const int64_t at = (e * d_ff + f) * d_model + d;
        g.weight1[at] += d_one * x[d];
        g.x[t * d_model + d] += d_one * in.weight1[at];
        if (!gated) continue;
        g.weight3[at] += d_three * x[d];
        g.x[t * d_model + d] += d_three * in.weight3[at];
      }
    }
  }
  return g;
}

}  // namespace tarn::reference
