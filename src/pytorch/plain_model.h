// The oracle of the model tests: the language model once more, from plain torch
// operations and dense T x T weights, read off the definitions. It shares no
// code with the modules; autograd differentiates it.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "core/config.h"

namespace tarn::plain {

using Weights = std::map<std::string, torch::Tensor>;

/// Copies of a module's parameters, converted; leaves that require gradients.
inline Weights CopyWeights(const torch::nn::Module& module,
                           torch::ScalarType dtype) {
  Weights weights;
  for (const auto& item : module.named_parameters()) {
    weights[item.key()] =
        item.value().detach().to(dtype).clone().requires_grad_(true);
  }
  return weights;
}

inline torch::Tensor Affine(const Weights& weights, const std::string& name,
                            const torch::Tensor& x) {
  return torch::matmul(x, weights.at(name + ".weight").t()) +
         weights.at(name + ".bias");
}

inline torch::Tensor Normed(const ModelConfig& config, const Weights& weights,
                            const std::string& name, const torch::Tensor& x) {
  const torch::Tensor centred = x - x.mean(-1, true);
  const torch::Tensor variance = centred.pow(2).mean(-1, true);
  return centred / torch::sqrt(variance + config.norm_eps) *
             weights.at(name + ".weight") +
         weights.at(name + ".bias");
}

// [T, 1] positions times [1, n] frequencies base^(-2i / width): [T, n].
inline torch::Tensor Angles(int64_t seq_len, int64_t n, int64_t width,
                            double base) {
  const auto f64 = torch::kFloat64;
  const torch::Tensor exponents = torch::arange(n, f64) * (-2.0 / width);
  return torch::arange(seq_len, f64).unsqueeze(1) *
         torch::exp(exponents * std::log(base)).unsqueeze(0);
}

inline torch::Tensor Sinusoidal(int64_t seq_len, int64_t width) {
  const torch::Tensor angles = Angles(seq_len, (width + 1) / 2, width, 10000.0);
  return torch::stack({angles.sin(), angles.cos()}, -1)  // [T, n, 2]
      .flatten(1)
      .narrow(1, 0, width);
}

// x [B, H, T, K], each pair (i, i + K/2) turned by its angle.
inline torch::Tensor Turned(const ModelConfig& config, const torch::Tensor& x) {
  const int64_t half = config.d_key / 2;
  const torch::Tensor angles =
      Angles(x.size(2), half, config.d_key, config.rotary_base);
  const torch::Tensor cos = angles.cos().to(x.dtype());
  const torch::Tensor sin = angles.sin().to(x.dtype());
  const torch::Tensor a = x.slice(-1, 0, half), b = x.slice(-1, half);
  return torch::cat({a * cos - b * sin, a * sin + b * cos}, -1);
}

inline torch::Tensor Phi(FeatureMap map, const torch::Tensor& x) {
  if (map == FeatureMap::kIdentity) return x;
  return torch::where(x > 0, x + 1,
                      torch::exp(torch::minimum(x, torch::zeros_like(x))));
}

// queries, keys [B, H, T, K], values [B, H, T, V] -> [B, H, T, V].
inline torch::Tensor Attend(const ModelConfig& config, torch::Tensor queries,
                            torch::Tensor keys, const torch::Tensor& values) {
  const bool rotary = config.positions == Positions::kRotary;
  const bool linear = config.attention == AttentionKind::kLinear;
  const bool after =
      rotary && linear && config.rotary_place == RotaryPlace::kAfter;
  if (rotary && !after) {
    queries = Turned(config, queries);
    keys = Turned(config, keys);
  }
  if (!linear) {
    const torch::Tensor scores = torch::matmul(queries, keys.mT()) /
                                 std::sqrt(static_cast<double>(config.d_key));
    const torch::Tensor future =
        torch::ones_like(scores).triu(1).to(torch::kBool);
    return torch::matmul(
        torch::softmax(scores.masked_fill(future, -INFINITY), -1), values);
  }
  queries = Phi(config.feature_map, queries);
  keys = Phi(config.feature_map, keys);
  const torch::Tensor weights = torch::matmul(queries, keys.mT()).tril();
  const torch::Tensor turned =
      after ? torch::matmul(Turned(config, queries), Turned(config, keys).mT())
                  .tril()
            : weights;
  const torch::Tensor numerators = torch::matmul(turned, values);
  const torch::Tensor denominators = weights.sum(-1, true);
  switch (config.denominator) {
    case Denominator::kNone:
      return numerators;
    case Denominator::kCompat:
      return numerators / (denominators + config.eps);
    case Denominator::kSigned:  // not of this model
    case Denominator::kExact:
      break;
  }
  return numerators / denominators;
}

inline torch::Tensor Attention(const ModelConfig& config,
                               const Weights& weights, const std::string& name,
                               const torch::Tensor& x) {
  const auto heads = [&](const char* part) {  // [B, T, D] -> [B, H, T, width]
    const torch::Tensor y = Affine(weights, name + part, x);
    return y.unflatten(2, {config.n_heads, -1}).transpose(1, 2);
  };
  const torch::Tensor out =
      Attend(config, heads(".query_projection"), heads(".key_projection"),
             heads(".value_projection"));
  return Affine(weights, name + ".out_projection",
                out.transpose(1, 2).flatten(2));
}

inline torch::Tensor FeedForward(const ModelConfig& config,
                                 const Weights& weights,
                                 const std::string& name,
                                 const torch::Tensor& x) {
  const torch::Tensor u = Affine(weights, name + ".linear1", x);
  return Affine(weights, name + ".linear2",
                config.activation == Activation::kRelu
                    ? torch::where(u > 0, u, torch::zeros_like(u))
                    : u * 0.5 * (1.0 + torch::erf(u / std::sqrt(2.0))));
}

inline torch::Tensor Layer(const ModelConfig& config, const Weights& weights,
                           const std::string& name, const torch::Tensor& x) {
  const auto norm = [&](const char* which, const torch::Tensor& y) {
    return Normed(config, weights, name + which, y);
  };
  if (config.norm == Norm::kPre) {
    const torch::Tensor x1 =
        x + Attention(config, weights, name + ".attention", norm(".norm1", x));
    return x1 + FeedForward(config, weights, name, norm(".norm2", x1));
  }
  const torch::Tensor x1 =
      norm(".norm1", x + Attention(config, weights, name + ".attention", x));
  return norm(".norm2", x1 + FeedForward(config, weights, name, x1));
}

/// tokens [B, T] -> logits [B, T, vocab], the dtype of the weights.
inline torch::Tensor Logits(const ModelConfig& config, const Weights& weights,
                            const torch::Tensor& tokens) {
  const int64_t seq_len = tokens.size(1);
  const torch::Tensor& table = weights.at("value_embedding.weight");
  torch::Tensor x = table.index({tokens});
  if (config.positions == Positions::kLearned) {
    const torch::Tensor& rows = weights.at("pos_embedding.weight");
    std::vector<torch::Tensor> used;
    for (int64_t t = 0; t < seq_len; ++t) {
      used.push_back(rows[std::min(t, config.max_positions - 1)]);
    }
    x = x + torch::stack(used);
  } else if (config.positions == Positions::kSinusoidal) {
    if (config.position_combine == PositionCombine::kAdd) {
      x = x + Sinusoidal(seq_len, config.d_model).to(x.dtype());
    } else {
      const torch::Tensor rows =
          Sinusoidal(seq_len, config.d_model / 2).to(x.dtype());
      x = torch::cat({x, rows.unsqueeze(0).repeat({x.size(0), 1, 1})}, -1);
    }
  }
  for (int64_t i = 0; i < config.n_layers; ++i) {
    x = Layer(config, weights, "layers." + std::to_string(i), x);
  }
  if (config.final_norm) x = Normed(config, weights, "norm", x);
  return torch::matmul(
             x,
             (config.tied_head ? table : weights.at("predictor.weight")).t()) +
         weights.at("predictor.bias");
}

/// Largest |a - b|, relative to the largest entry of b where that is above 1.
inline double LargestError(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor difference =
      a.to(torch::kFloat64) - b.to(torch::kFloat64);
  return difference.abs().max().item<double>() /
         std::max(1.0, b.abs().max().item<double>());
}

}  // namespace tarn::plain
