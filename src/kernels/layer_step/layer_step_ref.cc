#include "kernels/layer_step/layer_step_ref.h"

#include <cmath>

namespace tarn {
namespace {

Doubles Mapped(const LayerStepMapRef& map, const Doubles& x) {
  Doubles y(map.weight.size() / x.size());
  for (size_t n = 0; n < y.size(); ++n) {
    y[n] = map.bias.empty() ? 0.0 : map.bias[n];
    for (size_t k = 0; k < x.size(); ++k) {
      y[n] += map.weight[n * x.size() + k] * x[k];
    }
  }
  return y;
}

Doubles NormedRow(const LayerStepModelRef& model, const LayerStepNormRef& norm,
                  Doubles x) {
  if (norm.gamma.empty()) return x;
  const double count = static_cast<double>(x.size());
  double mean = 0, square = 0;
  if (!model.rms) {
    for (const double v : x) mean += v / count;
  }
  for (const double v : x) square += (v - mean) * (v - mean) / count;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = (x[i] - mean) / std::sqrt(square + model.eps) * norm.gamma[i] +
           (norm.beta.empty() ? 0.0 : norm.beta[i]);
  }
  return x;
}

double Feature(double x) { return x > 0 ? x + 1 : std::exp(x); }

Doubles Attended(const LayerStepModelRef& model, LayerStepAttentionRef& a,
                 const Doubles& y) {
  const Doubles q = Mapped(a.query, y), k = Mapped(a.key, y),
                v = Mapped(a.value, y);
  const size_t d_key = q.size() / model.heads, d_value = v.size() / model.heads;
  Doubles out(v.size());
  for (size_t h = 0; h < model.heads; ++h) {
    double divisor = 0;
    for (size_t i = 0; i < d_key; ++i) {
      double& z = a.z[h * d_key + i];
      z += Feature(k[h * d_key + i]);
      divisor += z * Feature(q[h * d_key + i]);
    }
    for (size_t i = 0; i < d_key; ++i) {
      for (size_t j = 0; j < d_value; ++j) {
        double& S = a.S[(h * d_key + i) * d_value + j];
        S += Feature(k[h * d_key + i]) * v[h * d_value + j];
        out[h * d_value + j] += S * Feature(q[h * d_key + i]) / divisor;
      }
    }
  }
  return Mapped(a.out, out);
}

Doubles FedForward(const LayerStepModelRef& model, const LayerStepLayerRef& w,
                   const Doubles& y) {
  Doubles hidden = Mapped(w.linear1, y);
  const bool gated = !w.linear3.weight.empty();
  const Doubles up = gated ? Mapped(w.linear3, y) : Doubles();
  for (size_t i = 0; i < hidden.size(); ++i) {
    double& u = hidden[i];
    if (gated) {
      u = u / (1 + std::exp(-u)) * up[i];
    } else if (model.gelu) {
      u = u * std::erfc(-u / std::sqrt(2.0)) / 2;
    } else {
      u = u > 0 ? u : 0;
    }
  }
  return Mapped(w.linear2, hidden);
}

template <typename F>
Doubles Sublayer(const LayerStepModelRef& model, const LayerStepNormRef& norm,
                 const Doubles& x, const F& f) {
  Doubles sum = f(model.pre_norm ? NormedRow(model, norm, x) : x);
  for (size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
  return model.pre_norm ? sum : NormedRow(model, norm, sum);
}

}  // namespace

Doubles LayerStepRef(LayerStepModelRef& model, Doubles x) {
  for (LayerStepLayerRef& layer : model.layers) {
    for (LayerStepAttentionRef& a : layer.attentions) {
      x = Sublayer(model, a.norm, x,
                   [&](const Doubles& y) { return Attended(model, a, y); });
    }
    x = Sublayer(model, layer.norm, x,
                 [&](const Doubles& y) { return FedForward(model, layer, y); });
  }
  x = NormedRow(model, model.last_norm, x);
  return model.head.weight.empty() ? x : Mapped(model.head, x);
}

}  // namespace tarn
