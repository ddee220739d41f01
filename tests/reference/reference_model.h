// The whole forward pass a second time: plain loops in double, mixers in their
// quadratic form, and no code of the runtime.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/feature_map.h"
#include "feed_forward/moe_form.h"
#include "reference/reference_recurrent.h"
#include "reference/reference_softmax.h"

namespace tarn::testing {

using Tensors = std::map<std::string, std::vector<float>>;

/// Every model that the runtime runs, from tokens to logits. A layer uses its
/// own view of the configuration, so stacks may mix their mixers.
class ReferenceModel {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  ReferenceModel(const ModelConfig& config, const Tensors& tensors)
      : config_(config), tensors_(tensors) {}

  /// The logits of a language model: logits[t][v].
  Rows Logits(const std::vector<int32_t>& tokens) const {
    Rows x = Embed("value_embedding.weight", "pos_embedding.weight", tokens);
    for (int64_t i = 0; i < config_.n_layers; ++i) {
      Layer(i, "layers.", "attention.", true, nullptr, x);
    }
    return Head(Last("norm", x), "value_embedding.weight");
  }

  /// The logits of a sequence-to-sequence model for the target's tokens.
  Rows TargetLogits(const std::vector<int32_t>& source,
                    const std::vector<int32_t>& target) const {
    Rows memory =
        Embed("value_embedding.weight", "pos_embedding.weight", source);
    for (int64_t i = 0; i < config_.n_layers; ++i) {
      Layer(i, "encoder.layers.", "attention.", false, nullptr, memory);
    }
    memory = Last("encoder.norm", memory);
    Rows x =
        Embed("target_embedding.weight", "target_pos_embedding.weight", target);
    for (int64_t i = 0; i < config_.n_decoder_layers; ++i) {
      Layer(i, "decoder.layers.", "self_attention.", true, &memory, x);
    }
    return Head(Last("decoder.norm", x), "target_embedding.weight");
  }

  /// The logits of a classifier: the head on the mean of the stack's rows.
  Row ClassLogits(const std::vector<int32_t>& tokens) const {
    Rows x = Embed("value_embedding.weight", "pos_embedding.weight", tokens);
    for (int64_t i = 0; i < config_.n_layers; ++i) {
      Layer(i, "layers.", "attention.", false, nullptr, x);
    }
    Row mean(static_cast<size_t>(config_.d_model), 0.0);
    for (const Row& row : Last("norm", x)) {
      for (size_t i = 0; i < mean.size(); ++i) {
        mean[i] += row[i] / static_cast<double>(x.size());
      }
    }
    return Head({mean}, "")[0];
  }

 private:
  Rows Last(const std::string& norm, Rows x) const {
    if (config_.final_norm) {
      for (Row& row : x) row = Norm(norm, row);
    }
    return x;
  }

  Rows Head(const Rows& x, const std::string& table) const {
    Rows logits;
    for (const Row& row : x) {
      logits.push_back(Affine(config_.tied_head ? table : "predictor.weight",
                              "predictor.bias", row));
      for (double& logit : logits.back()) {
        logit *= config_.logit_factor;
        const double cap = config_.logit_softcap;
        if (cap > 0) logit = cap * std::tanh(logit / cap);
      }
    }
    return logits;
  }

  Rows Embed(const std::string& table, const std::string& positions,
             const std::vector<int32_t>& tokens) const {
    Rows x;
    for (size_t t = 0; t < tokens.size(); ++t) {
      x.push_back(Embed(table, positions, tokens[t], static_cast<int64_t>(t)));
    }
    return x;
  }

  Row Embed(const std::string& values, const std::string& places, int32_t token,
            int64_t position) const {
    const auto& table = tensors_.at(values);
    const int64_t width = config_.EmbeddingWidth();
    Row x;
    for (int64_t i = 0; i < width; ++i) {
      x.push_back(config_.embedding_factor * table[token * width + i]);
    }
    if (config_.positions == Positions::kLearned) {
      const auto& learned = tensors_.at(places);
      for (int64_t i = 0; i < width; ++i) {
        x[i] += learned.at(static_cast<size_t>(position * width + i));
      }
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
    if (!config_.input_norm) return x;
    return Norm(
        values.starts_with("target") ? "target_input_norm" : "input_norm", x);
  }

  // The bias is left out where the model has no such tensor.
  Row Affine(const std::string& weight, const std::string& bias,
             const Row& x) const {
    const auto& w = tensors_.at(weight);
    const auto b = tensors_.find(bias);
    Row y;
    for (size_t n = 0; n < w.size() / x.size(); ++n) {
      double sum = b == tensors_.end() ? 0 : b->second[n];
      for (size_t k = 0; k < x.size(); ++k) sum += w[n * x.size() + k] * x[k];
      y.push_back(sum);
    }
    return y;
  }
  Row Linear(const std::string& name, const Row& x) const {
    return Affine(name + ".weight", name + ".bias", x);
  }

  static double Sigma(double x) { return 1 / (1 + std::exp(-x)); }

  // RMS norm subtracts no mean and has no bias.
  Row Norm(const std::string& name, const Row& x) const {
    const bool centred = config_.norm_kind == NormKind::kLayer;
    double mean = 0, variance = 0;
    for (double v : x) {
      if (centred) mean += v / static_cast<double>(x.size());
    }
    for (double v : x) {
      variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
    }
    Row y;
    for (size_t i = 0; i < x.size(); ++i) {
      y.push_back((x[i] - mean) / std::sqrt(variance + config_.norm_eps) *
                  (tensors_.at(name + ".weight")[i] + config_.norm_offset));
      if (centred) y.back() += tensors_.at(name + ".bias")[i];
    }
    return y;
  }

  // x + f(norm(x)), norm(x + f(x)), x + norm(f(x)), x + norm_after(f(norm(x)))
  // or x + f(x), with a factor of what is added.
  template <typename F>
  void Sublayer(const std::string& norm, const std::string& place, const F& f,
                Rows& x) const {
    Rows in;
    for (const Row& row : x) {
      in.push_back(place == "pre" || place == "both" ? Norm(norm, row) : row);
    }
    Rows y = f(in);
    for (size_t t = 0; t < x.size(); ++t) {
      if (place == "after") y[t] = Norm(norm, y[t]);
      if (place == "both") y[t] = Norm(norm + "_after", y[t]);
      for (size_t i = 0; i < x[t].size(); ++i) {
        x[t][i] += config_.residual_factor * y[t][i];
      }
      if (place == "post") x[t] = Norm(norm, x[t]);
    }
  }

  void Layer(int64_t i, const std::string& stack, const std::string& attention,
             bool causal, const Rows* memory, Rows& x) const {
    const std::string name = stack + std::to_string(i) + ".";
    const std::string place = Name(LayerView(config_, i).norm);
    const Rows before = x;
    Sublayer(
        name + "norm1", place,
        [&](const Rows& in) {
          return Attention(LayerView(config_, i), name + attention, in, in,
                           causal, config_.positions == Positions::kRotary);
        },
        x);
    if (memory != nullptr) {
      Sublayer(
          name + "norm2", place,
          [&](const Rows& in) {
            return Attention(CrossView(config_), name + "cross_attention.", in,
                             *memory, false, false);
          },
          x);
    }
    const std::string part = Name(LayerView(config_, i).feed_forward);
    if (part == "none") return;
    const auto forward = [&](const Rows& in) {
      return FeedForward(part, name, in);
    };
    if (config_.parallel_residual) {
      Rows sum = before;
      Sublayer(name + "norm2", place, forward, sum);
      for (size_t t = 0; t < x.size(); ++t) {
        for (size_t d = 0; d < x[t].size(); ++d) {
          x[t][d] += sum[t][d] - before[t][d];
        }
      }
      return;
    }
    Sublayer(name + (memory != nullptr ? "norm3" : "norm2"), place, forward, x);
  }

  // GELU: the exact form, or that with a tanh.
  static double Gelu(double x, bool with_tanh) {
    if (!with_tanh) return x / 2 * std::erfc(-x / std::sqrt(2.0));
    const double root = std::sqrt(2 / std::acos(-1.0));
    return x / 2 * (1 + std::tanh(root * (x + 0.044715 * x * x * x)));
  }

  Rows FeedForward(const std::string& part, const std::string& name,
                   const Rows& x) const {
    if (part == "channel-mix") return ChannelMix(name, x);
    if (part == "gated-channel-mix") {
      Rows out = ChannelMix(name, x);
      for (size_t t = 0; t < x.size(); ++t) {
        const Row gate =
            Linear(name + "gate", Shifted(name + "gate_shift", x, t));
        for (size_t i = 0; i < gate.size(); ++i) {
          out[t][i] /= 1 + std::exp(-gate[i]);
        }
      }
      return out;
    }
    if (part == "moe") return Mixture(name, x);
    Rows out;
    for (const Row& row : x) {
      Row h = Linear(name + "linear1", row);
      // silu or gelu (W1 x) * W3 x (Shazeer 2020, eq. (6))
      if (part == "swiglu" || part == "geglu" || part == "geglu-tanh") {
        const Row up = Linear(name + "linear3", row);
        for (size_t i = 0; i < h.size(); ++i) {
          h[i] = up[i] * (part == "swiglu" ? h[i] * Sigma(h[i])
                                           : Gelu(h[i], part == "geglu-tanh"));
        }
      } else if (part == "relu2") {
        for (double& v : h) v = v > 0 ? v * v : 0;
      } else {
        for (double& v : h) {
          v = config_.activation == Activation::kRelu
                  ? std::max(v, 0.0)
                  : Gelu(v, config_.activation == Activation::kGeluTanh);
        }
      }
      out.push_back(Linear(name + "linear2", h));
    }
    return out;
  }

  // W[e] x of a stack of matrices [experts, rows, x.size()].
  Row Times(const std::string& name, int64_t e, size_t rows,
            const Row& x) const {
    Row y(rows, 0.0);
    const auto& w = tensors_.at(name);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < x.size(); ++j) {
        y[i] += w[(static_cast<size_t>(e) * rows + i) * x.size() + j] * x[j];
      }
    }
    return y;
  }

  // Softmax weights of the largest logits, or sigmoids of the largest sums with
  // a bias, divided by their sum; swiglu.
  Rows Mixture(const std::string& name, const Rows& x) const {
    const MoeForm form = MoeFormOf(config_);
    Rows out;
    for (const Row& row : x) {
      Row left = Times(name + "router.weight", 0,
                       static_cast<size_t>(form.experts), row);
      const Row logits = left;
      for (size_t e = 0; form.biased() && e < left.size(); ++e) {
        left[e] = Sigma(left[e]) + tensors_.at(name + "router_bias")[e];
      }
      Row y(row.size(), 0.0), share;
      std::vector<Row> parts;
      double sum = 0;
      for (int64_t j = 0; j < form.per_token; ++j) {
        const auto best = std::max_element(left.begin(), left.end());
        const int64_t e = best - left.begin();
        const double logit = logits[static_cast<size_t>(e)];
        share.push_back(form.biased() ? Sigma(logit) : std::exp(logit));
        sum += share.back();
        *best = -INFINITY;
        const size_t width = static_cast<size_t>(form.width);
        Row h = Times(name + "experts.linear1", e, width, row);
        const Row up = Times(name + "experts.linear3", e, width, row);
        for (size_t i = 0; i < h.size(); ++i) h[i] *= Sigma(h[i]) * up[i];
        parts.push_back(Times(name + "experts.linear2", e, row.size(), h));
      }
      for (size_t j = 0; j < parts.size(); ++j) {
        for (size_t i = 0; i < y.size(); ++i) {
          y[i] += share[j] / sum * parts[j][i];
        }
      }
      out.push_back(y);
    }
    return out;
  }

  // Peng et al. 2025, arXiv 2503.14456: a row and the one before it.
  Row Shifted(const std::string& shift, const Rows& x, size_t t) const {
    Row mixed = x[t];
    for (size_t i = 0; i < mixed.size(); ++i) {
      const double before = t == 0 ? 0 : x[t - 1][i];
      mixed[i] += (before - x[t][i]) * tensors_.at(shift)[i];
    }
    return mixed;
  }

  Rows ChannelMix(const std::string& name, const Rows& x) const {
    Rows out;
    for (size_t t = 0; t < x.size(); ++t) {
      Row h = Linear(name + "linear1", Shifted(name + "token_shift", x, t));
      for (double& v : h) v = v > 0 ? v * v : 0;
      out.push_back(Linear(name + "linear2", h));
    }
    return out;
  }

  Row HeadOf(const Row& row, int64_t head, int64_t width) const {
    return Row(row.begin() + head * width, row.begin() + (head + 1) * width);
  }

  Row Phi(const ModelConfig& view, const Row& x) const {
    Row y = x;
    for (double& v : y) {
      switch (KeyOf<FeatureMap>(view, "feature_map")) {
        case FeatureMap::kElu1:
          v = v > 0 ? v + 1 : std::exp(v);
          break;
        case FeatureMap::kRelu:
          v = std::max(v, 0.0);
          break;
        case FeatureMap::kRelu2:
          v = v > 0 ? v * v : 0;
          break;
        case FeatureMap::kSoftplus:
          v = std::log1p(std::exp(v));
          break;
        default:
          break;
      }
    }
    if (KeyOf<FeatureMap>(view, "feature_map") != FeatureMap::kPoly2) return y;
    // (1 + s)^2 = 1 + 2 s + s^2 with s = x.y / sqrt(d_key): every pair (i, l).
    const double root = std::pow(static_cast<double>(x.size()), -0.25);
    Row features = {1};
    for (const double v : x) features.push_back(std::sqrt(2.0) * root * v);
    for (const double v : x) {
      for (const double w : x) features.push_back(root * v * root * w);
    }
    return features;
  }

  Row Turn(const Row& x, size_t position) const {
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

  // Weights of the first `count` values for one query, in the quadratic form.
  // turn: whether rows are rotated by their positions.
  Row HeadWeights(const ModelConfig& view, const Row& query, size_t t,
                  const Rows& keys, size_t count, bool turn) const {
    if (view.attention == MixerKind("full")) {
      return Softmax(query, t, keys, count, turn);
    }
    const bool after = turn && config_.rotary_place == RotaryPlace::kAfter;
    const bool before = turn && !after;
    const Row q = Phi(view, before ? Turn(query, t) : query);
    Row weights;
    double denominator = 0, norms = 0;
    for (size_t j = 0; j < count; ++j) {
      const Row k = Phi(view, before ? Turn(keys[j], j) : keys[j]);
      weights.push_back(after ? Dot(Turn(q, t), Turn(k, j)) : Dot(q, k));
      denominator += Dot(q, k);
      norms += std::sqrt(Dot(k, k));
    }
    switch (KeyOf<Denominator>(view, "denominator")) {
      case Denominator::kNone:
        denominator = 1;
        break;
      case Denominator::kCompat:
        denominator += KeyOf<double>(view, "eps");
        break;
      case Denominator::kSigned: {
        const double least = 1e-6 * std::sqrt(Dot(q, q)) * norms;
        if (std::fabs(denominator) < least) {
          denominator = denominator < 0 ? -least : least;
        }
        break;
      }
      case Denominator::kExact:
        if (denominator < 0) denominator = 0;
    }
    // A row without weight is zero.
    for (double& w : weights) w = denominator == 0 ? 0 : w / denominator;
    return weights;
  }

  Row Softmax(const Row& query, size_t t, const Rows& keys, size_t count,
              bool turn) const {
    const double scale = 1 / std::sqrt(static_cast<double>(query.size()));
    Row weights;
    double sum = 0, largest = -1e300;
    for (size_t j = 0; j < count; ++j) {
      weights.push_back(scale * (turn ? Dot(Turn(query, t), Turn(keys[j], j))
                                      : Dot(query, keys[j])));
      largest = std::max(largest, weights.back());
    }
    for (double& w : weights) sum += w = std::exp(w - largest);
    for (double& w : weights) w /= sum;
    return weights;
  }

  // Every head's weighted sums, side by side.
  Rows Heads(const ModelConfig& view, const Rows& q, const Rows& k,
             const Rows& v, bool causal, bool turn) const {
    Rows joined(q.size());
    for (int64_t h = 0; h < view.n_heads; ++h) {
      Rows keys;
      for (const Row& row : k) keys.push_back(HeadOf(row, h, view.d_key));
      for (size_t t = 0; t < q.size(); ++t) {
        const size_t count = causal ? t + 1 : keys.size();
        const Row weights = HeadWeights(view, HeadOf(q[t], h, view.d_key), t,
                                        keys, count, turn);
        for (int64_t i = 0; i < view.d_value; ++i) {
          double sum = 0;
          for (size_t j = 0; j < count; ++j) {
            sum += weights[j] * v[j][h * view.d_value + i];
          }
          joined[t].push_back(sum);
        }
      }
    }
    return joined;
  }

  // aft-simple, channel by channel (Zhai et al. 2021, eq. (2) with w = 0):
  // sigma(q_t) sum_j exp(k_j) v_j / sum_j exp(k_j).
  static Rows Averages(const Rows& q, const Rows& k, const Rows& v,
                       bool causal) {
    Rows joined(q.size());
    for (size_t t = 0; t < q.size(); ++t) {
      const size_t count = causal ? t + 1 : k.size();
      for (size_t c = 0; c < q[t].size(); ++c) {
        double sum = 0, weights = 0;
        for (size_t j = 0; j < count; ++j) {
          sum += std::exp(k[j][c]) * v[j][c];
          weights += std::exp(k[j][c]);
        }
        joined[t].push_back(Sigma(q[t][c]) * sum / weights);
      }
    }
    return joined;
  }

  // Parallel mixers.
  Rows Sum(const ModelConfig& view, const std::string& name, const Rows& x,
           bool causal, bool turn) const {
    Rows sum(x.size(), Row(static_cast<size_t>(view.d_model), 0.0));
    for (size_t b = 0; b < view.branches.size(); ++b) {
      const ModelConfig& branch = view.branches[b];
      const std::string own = name + "branches." + std::to_string(b) + ".";
      const Rows y = Attention(branch, own, x, x, causal, turn);
      for (size_t t = 0; t < x.size(); ++t) {
        for (size_t i = 0; i < y[t].size(); ++i) {
          sum[t][i] += branch.branch_factor * y[t][i];
        }
      }
    }
    return sum;
  }

  // Queries from x, keys and values from memory (x itself: self attention).
  Rows Attention(const ModelConfig& view, const std::string& name,
                 const Rows& x, const Rows& memory, bool causal,
                 bool turn) const {
    if (!view.branches.empty()) return Sum(view, name, x, causal, turn);
    if (ReferenceRecurrent::Knows(tarn::Name(view.attention))) {
      return ReferenceRecurrent(view, tensors_, name).Run(x, &first_values_);
    }
    if (std::string(tarn::Name(view.attention)) == "gated-full") {
      return ReferenceGatedSoftmax(view, tensors_, name).Run(x);
    }
    Rows q, k, v, out;
    for (const Row& row : x) {
      q.push_back(Linear(name + "query_projection", row));
    }
    for (const Row& row : memory) {
      k.push_back(Linear(name + "key_projection", row));
      v.push_back(Linear(name + "value_projection", row));
    }
    const Rows joined = view.attention == MixerKind("aft-simple")
                            ? Averages(q, k, v, causal)
                            : Heads(view, q, k, v, causal, turn);
    for (const Row& row : joined) {
      out.push_back(Linear(name + "out_projection", row));
    }
    return out;
  }

  ModelConfig config_;
  Tensors tensors_;
  mutable Rows first_values_;  // of the first RWKV-7 layer
};

}  // namespace tarn::testing
