// Model directories for tests, and the whole forward pass once more: plain
// loops in double, attention in its quadratic form, no code of the runtime.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/file.h"
#include "core/rng.h"
#include "core/safetensors.h"
#include "core/test_util.h"

namespace tarn::testing {

using Tensors = std::map<std::string, std::vector<float>>;

/// Small enough to read, odd enough to have tails everywhere.
inline ModelConfig SmallConfig() {
  ModelConfig config;
  config.vocab_size = 29;
  config.d_model = 22;
  config.n_layers = 2;
  config.n_heads = 3;
  config.d_key = 6;
  config.d_value = 5;
  config.d_ff = 37;
  config.max_positions = 9;
  FinishConfig(config);
  return config;
}

/// Wide enough that products and row loops are cut into parallel pieces.
inline ModelConfig WideConfig() {
  ModelConfig config;
  config.vocab_size = 301;
  config.d_model = 192;
  config.n_layers = 2;
  config.n_heads = 4;
  config.d_key = 34;
  config.d_value = 50;
  config.d_ff = 310;
  FinishConfig(config);
  return config;
}

/// Matrices N(0, 1/inputs), embeddings N(0, 1), norms near 1, small biases.
inline Tensors RandomTensors(const ModelConfig& config, uint64_t seed) {
  Rng rng(seed);
  Tensors tensors;
  for (const auto& [name, shape] : WeightShapes(config)) {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    const bool embedding = name.find("embedding") != std::string::npos;
    const bool norm_weight = shape.size() == 1 &&
                             name.find("norm") != std::string::npos &&
                             name.find("weight") != std::string::npos;
    const double size =
        embedding ? 1.0
                  : (shape.size() == 2
                         ? 1.0 / std::sqrt(static_cast<double>(shape[1]))
                         : 0.2);
    std::vector<float>& values = tensors[name];
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(
          static_cast<float>((norm_weight ? 1.0 : 0.0) + size * rng.Normal()));
    }
  }
  return tensors;
}

/// Shapes come from the config unless `shapes` names others.
inline void WriteTensors(
    const std::string& dir, const ModelConfig& config, const Tensors& tensors,
    const std::map<std::string, std::vector<int64_t>>& shapes = {}) {
  std::vector<TensorToWrite> list;
  std::map<std::string, std::vector<int64_t>> known;
  for (const auto& [name, shape] : WeightShapes(config)) known[name] = shape;
  for (const auto& [name, shape] : shapes) known[name] = shape;
  for (const auto& [name, values] : tensors) {
    list.push_back({name, DType::kF32, known.at(name), values.data()});
  }
  WriteSafetensors(dir + "/model.safetensors", list, {});
}

inline void WriteModel(const std::string& dir, const ModelConfig& config,
                       const Tensors& tensors) {
  WriteFileAtomically(dir + "/config.json", ConfigToJson(config));
  WriteTensors(dir, config, tensors);
}

inline std::vector<int32_t> RandomTokens(const ModelConfig& config,
                                         int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(
        rng.Below(static_cast<uint64_t>(config.vocab_size))));
  }
  return tokens;
}

/// logits[t][v] of the sequence, in double.
class ReferenceModel {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  ReferenceModel(const ModelConfig& config, const Tensors& tensors)
      : config_(config), tensors_(tensors) {}

  Rows Logits(const std::vector<int32_t>& tokens) const {
    Rows x;
    for (size_t t = 0; t < tokens.size(); ++t) {
      x.push_back(Embed(tokens[t], static_cast<int64_t>(t)));
    }
    for (int64_t i = 0; i < config_.n_layers; ++i) {
      Layer("layers." + std::to_string(i) + ".", x);
    }
    Rows logits;
    for (const Row& row : x) {
      const Row last = config_.final_norm ? Norm("norm", row) : row;
      logits.push_back(Affine(
          config_.tied_head ? "value_embedding.weight" : "predictor.weight",
          "predictor.bias", last));
    }
    return logits;
  }

 private:
  Row Embed(int32_t token, int64_t position) const {
    const auto& table = tensors_.at("value_embedding.weight");
    const int64_t width = config_.EmbeddingWidth();
    Row x;
    for (int64_t i = 0; i < width; ++i) x.push_back(table[token * width + i]);
    if (config_.positions == Positions::kLearned) {
      const auto& learned = tensors_.at("pos_embedding.weight");
      const int64_t at = std::min(position, config_.max_positions - 1);
      for (int64_t i = 0; i < width; ++i) x[i] += learned[at * width + i];
    }
    if (config_.positions == Positions::kSinusoidal) {
      const bool concat = config_.position_combine == PositionCombine::kConcat;
      const int64_t positions = concat ? config_.d_model - width : width;
      for (int64_t i = 0; i < positions; ++i) {
        const double angle =
            static_cast<double>(position) /
            std::pow(10000.0, static_cast<double>(i - i % 2) /
                                  static_cast<double>(positions));
        const double value = i % 2 == 0 ? std::sin(angle) : std::cos(angle);
        if (concat) {
          x.push_back(value);
        } else {
          x[i] += value;
        }
      }
    }
    return x;
  }

  Row Affine(const std::string& weight, const std::string& bias,
             const Row& x) const {
    const auto& w = tensors_.at(weight);
    const auto& b = tensors_.at(bias);
    Row y;
    for (size_t n = 0; n < b.size(); ++n) {
      double sum = b[n];
      for (size_t k = 0; k < x.size(); ++k) sum += w[n * x.size() + k] * x[k];
      y.push_back(sum);
    }
    return y;
  }
  Row Linear(const std::string& name, const Row& x) const {
    return Affine(name + ".weight", name + ".bias", x);
  }

  Row Norm(const std::string& name, const Row& x) const {
    double mean = 0, variance = 0;
    for (double v : x) mean += v / static_cast<double>(x.size());
    for (double v : x) {
      variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
    }
    Row y;
    for (size_t i = 0; i < x.size(); ++i) {
      y.push_back((x[i] - mean) / std::sqrt(variance + config_.norm_eps) *
                      tensors_.at(name + ".weight")[i] +
                  tensors_.at(name + ".bias")[i]);
    }
    return y;
  }

  void Layer(const std::string& name, Rows& x) const {
    const bool pre = config_.norm == tarn::Norm::kPre;
    Rows in;
    for (const Row& row : x)
      in.push_back(pre ? Norm(name + "norm1", row) : row);
    const Rows attended = Attention(name + "attention.", in);
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < x[t].size(); ++i) x[t][i] += attended[t][i];
      if (!pre) x[t] = Norm(name + "norm1", x[t]);
      Row h = Linear(name + "linear1", pre ? Norm(name + "norm2", x[t]) : x[t]);
      for (double& v : h) {
        v = config_.activation == Activation::kRelu
                ? std::max(v, 0.0)
                : v / 2 * std::erfc(-v / std::sqrt(2.0));
      }
      const Row y = Linear(name + "linear2", h);
      for (size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[i];
      if (!pre) x[t] = Norm(name + "norm2", x[t]);
    }
  }

  Row Head(const Row& row, int64_t head, int64_t width) const {
    return Row(row.begin() + head * width, row.begin() + (head + 1) * width);
  }

  Row Phi(Row x) const {
    if (config_.attention == AttentionKind::kFull ||
        config_.feature_map == FeatureMap::kIdentity) {
      return x;
    }
    for (double& v : x) v = v > 0 ? v + 1 : std::exp(v);
    return x;
  }

  Row Turn(const Row& x, size_t position) const {
    if (config_.positions != Positions::kRotary) return x;
    Row y = x;
    const size_t half = x.size() / 2;
    for (size_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) *
          std::pow(config_.rotary_base, -2.0 * static_cast<double>(i) /
                                            static_cast<double>(x.size()));
      y[i] = x[i] * std::cos(angle) - x[i + half] * std::sin(angle);
      y[i + half] = x[i + half] * std::cos(angle) + x[i] * std::sin(angle);
    }
    return y;
  }

  static double Dot(const Row& a, const Row& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }

  // Weights of values 0..t for query t, in the quadratic form.
  Row HeadWeights(const Rows& queries, const Rows& keys, size_t t) const {
    const bool full = config_.attention == AttentionKind::kFull;
    const bool after = !full && config_.rotary_place == RotaryPlace::kAfter;
    Row weights;
    double denominator = 0, largest = -1e300;
    for (size_t j = 0; j <= t; ++j) {
      const Row q = after ? Turn(Phi(queries[t]), t) : Phi(Turn(queries[t], t));
      const Row k = after ? Turn(Phi(keys[j]), j) : Phi(Turn(keys[j], j));
      weights.push_back(Dot(q, k));
      denominator += after ? Dot(Phi(queries[t]), Phi(keys[j])) : Dot(q, k);
      largest = std::max(largest, weights.back());
    }
    if (full) {
      const double scale = 1 / std::sqrt(static_cast<double>(config_.d_key));
      denominator = 0;
      for (double& w : weights) {
        w = std::exp(scale * (w - largest));
        denominator += w;
      }
    } else if (config_.denominator == Denominator::kNone) {
      denominator = 1;
    } else if (config_.denominator == Denominator::kCompat) {
      denominator += config_.eps;
    }
    for (double& w : weights) w /= denominator;
    return weights;
  }

  Rows Attention(const std::string& name, const Rows& x) const {
    Rows q, k, v, out;
    for (const Row& row : x) {
      q.push_back(Linear(name + "query_projection", row));
      k.push_back(Linear(name + "key_projection", row));
      v.push_back(Linear(name + "value_projection", row));
    }
    Rows joined(x.size());
    for (int64_t h = 0; h < config_.n_heads; ++h) {
      Rows queries, keys;
      for (size_t t = 0; t < x.size(); ++t) {
        queries.push_back(Head(q[t], h, config_.d_key));
        keys.push_back(Head(k[t], h, config_.d_key));
      }
      for (size_t t = 0; t < x.size(); ++t) {
        const Row weights = HeadWeights(queries, keys, t);
        for (int64_t i = 0; i < config_.d_value; ++i) {
          double sum = 0;
          for (size_t j = 0; j <= t; ++j) {
            sum += weights[j] * v[j][h * config_.d_value + i];
          }
          joined[t].push_back(sum);
        }
      }
    }
    for (const Row& row : joined) {
      out.push_back(Linear(name + "out_projection", row));
    }
    return out;
  }

  ModelConfig config_;
  Tensors tensors_;
};

}  // namespace tarn::testing
