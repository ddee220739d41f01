// The softmax attention of hybrids (mixers/softmax/form.h) a second time,
// in double and in its quadratic form.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/model_config.h"

namespace tarn::testing {

class ReferenceGatedSoftmax {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  /// name: the prefix of the layer's tensors, "layers.0.attention.".
  ReferenceGatedSoftmax(
      const ModelConfig& view,
      const std::map<std::string, std::vector<float>>& tensors,
      std::string name)
      : c_(view), tensors_(tensors), name_(std::move(name)) {}

  Rows Run(const Rows& x) const {
    const int64_t key_heads = KeyOf<int64_t>(c_, "key_heads") > 0
                                  ? KeyOf<int64_t>(c_, "key_heads")
                                  : c_.n_heads;
    Rows q, k, v, out;
    for (size_t t = 0; t < x.size(); ++t) {
      q.push_back(Prepared("query", x[t], t));
      k.push_back(Prepared("key", x[t], t));
      v.push_back(Linear("value", x[t]));
    }
    for (size_t t = 0; t < x.size(); ++t) {
      Row o;
      for (int64_t h = 0; h < c_.n_heads; ++h) {
        const int64_t g = h * key_heads / c_.n_heads;
        Row weights;
        double sum = 0;
        for (size_t j = 0; j <= t; ++j) {
          double score = 0;
          for (int64_t i = 0; i < c_.d_key; ++i) {
            score += q[t][static_cast<size_t>(h * c_.d_key + i)] *
                     k[j][static_cast<size_t>(g * c_.d_key + i)];
          }
          weights.push_back(
              std::exp(score / std::sqrt(static_cast<double>(c_.d_key))));
          sum += weights.back();
        }
        for (int64_t i = 0; i < c_.d_value; ++i) {
          double mean = 0;
          for (size_t j = 0; j <= t; ++j) {
            mean += weights[j] / sum *
                    v[j][static_cast<size_t>(g * c_.d_value + i)];
          }
          o.push_back(mean);
        }
      }
      if (KeyOf<bool>(c_, "output_gate")) {
        const Row z = Linear("gate", x[t]);
        for (size_t i = 0; i < o.size(); ++i) o[i] /= 1 + std::exp(-z[i]);
      }
      out.push_back(Linear("out", o));
    }
    return out;
  }

 private:
  Row Linear(const std::string& name, const Row& x) const {
    const auto& w = tensors_.at(name_ + name + "_projection.weight");
    Row y;
    for (size_t n = 0; n < w.size() / x.size(); ++n) {
      double sum = 0;
      for (size_t i = 0; i < x.size(); ++i) sum += w[n * x.size() + i] * x[i];
      y.push_back(sum);
    }
    return y;
  }

  // Queries or keys of all heads, normalised and rotated.
  Row Prepared(const std::string& name, const Row& x, size_t t) const {
    Row y = Linear(name, x);
    const size_t width = static_cast<size_t>(c_.d_key);
    const size_t turned =
        c_.positions != Positions::kRotary ? 0
        : KeyOf<int64_t>(c_, "rotary_width") > 0
            ? static_cast<size_t>(KeyOf<int64_t>(c_, "rotary_width"))
            : width;
    for (size_t at = 0; at < y.size(); at += width) {
      double square = c_.norm_eps;
      for (size_t i = 0; i < width; ++i) {
        square += y[at + i] * y[at + i] / static_cast<double>(width);
      }
      for (size_t i = 0; KeyOf<bool>(c_, "query_key_norm") && i < width; ++i) {
        y[at + i] *=
            tensors_.at(name_ + name + "_norm.weight")[i] / std::sqrt(square);
      }
      for (size_t i = 0; i < turned / 2; ++i) {
        const double angle =
            static_cast<double>(t) *
            std::pow(c_.rotary_base, -2.0 * static_cast<double>(i) /
                                         static_cast<double>(turned));
        double& a = y[at + i];
        double& b = y[at + i + turned / 2];
        const double first = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = first;
      }
    }
    return y;
  }

  const ModelConfig c_;
  const std::map<std::string, std::vector<float>>& tensors_;
  const std::string name_;
};

}  // namespace tarn::testing
