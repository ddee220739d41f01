// The oracle of the model tests: language model, encoder classifier and
// sequence-to-sequence model again, from plain torch operations and dense
// T x S weights, read off the definitions. It shares no code with the modules;
// autograd differentiates it.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/feature_map.h"
#include "feed_forward/moe_form.h"
#include "reference/torch/plain_gated_softmax.h"
#include "reference/torch/plain_rwkv.h"
#include "torch_nn/torch.h"

namespace tarn::plain {

using Weights = std::map<std::string, torch::Tensor>;

/// Copies of a module's parameters, converted, as leaves that require
/// gradients, and of its buffers.
inline Weights CopyWeights(const torch::nn::Module& module,
                           torch::ScalarType dtype) {
  Weights weights;
  for (const auto& item : module.named_parameters()) {
    weights[item.key()] =
        item.value().detach().to(dtype).clone().requires_grad_(true);
  }
  for (const auto& item : module.named_buffers()) {
    weights[item.key()] = item.value().detach().to(dtype).clone();
  }
  return weights;
}

// The bias is left out where the model has no such tensor.
inline torch::Tensor Affine(const Weights& weights, const std::string& name,
                            const torch::Tensor& x) {
  const torch::Tensor y = torch::matmul(x, weights.at(name + ".weight").t());
  const auto bias = weights.find(name + ".bias");
  return bias == weights.end() ? y : y + bias->second;
}

inline torch::Tensor Normed(const ModelConfig& config, const Weights& weights,
                            const std::string& name, const torch::Tensor& x) {
  const torch::Tensor weight =
      weights.at(name + ".weight") + config.norm_offset;
  if (config.norm_kind == NormKind::kRms) {
    return x * weight / torch::sqrt(x.pow(2).mean(-1, true) + config.norm_eps);
  }
  const torch::Tensor centred = x - x.mean(-1, true);
  const torch::Tensor variance = centred.pow(2).mean(-1, true);
  return centred / torch::sqrt(variance + config.norm_eps) * weight +
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

// x [B, H, T, K], each pair (i, i + K/2) rotated by its angle.
inline torch::Tensor Turned(const ModelConfig& config, const torch::Tensor& x) {
  const int64_t half = config.d_key / 2;
  const torch::Tensor angles =
      Angles(x.size(2), half, config.d_key, config.rotary_base);
  const torch::Tensor cos = angles.cos().to(x.dtype());
  const torch::Tensor sin = angles.sin().to(x.dtype());
  const torch::Tensor a = x.slice(-1, 0, half), b = x.slice(-1, half);
  return torch::cat({a * cos - b * sin, a * sin + b * cos}, -1);
}

// Features of x [..., K]; omega [K, n] of the random maps.
inline torch::Tensor Phi(FeatureMap map, const torch::Tensor& x,
                         const torch::Tensor& omega = {}) {
  const torch::Tensor zero = torch::zeros_like(x);
  const double width = static_cast<double>(x.size(-1));
  switch (map) {
    case FeatureMap::kElu1:
      return torch::where(x > 0, x + 1, torch::exp(torch::minimum(x, zero)));
    case FeatureMap::kRelu:
      return torch::maximum(x, zero);
    case FeatureMap::kRelu2:
      return torch::maximum(x, zero).pow(2);
    case FeatureMap::kSoftplus:
      return torch::log(1 + torch::exp(x));
    case FeatureMap::kGrf:
      return torch::relu(torch::matmul(x, omega));
    case FeatureMap::kIdentity:
    case FeatureMap::kPoly2:  // its kernel is written out
      return x;
    default:
      break;
  }
  const torch::Tensor scaled = x * std::pow(width, -0.25);
  const torch::Tensor u = torch::matmul(scaled, omega);
  const double columns = static_cast<double>(omega.size(1));
  const torch::Tensor waves =
      torch::cat({torch::cos(u), torch::sin(u)}, -1) / std::sqrt(columns);
  if (map == FeatureMap::kRff) return waves;
  if (map == FeatureMap::kSmoothedRff) {
    return torch::cat({waves, torch::ones_like(u.slice(-1, 0, 1))}, -1);
  }
  const torch::Tensor norm = scaled.pow(2).sum(-1, true) / 2;
  if (map == FeatureMap::kFavorPositive) {
    return torch::exp(u - norm) / std::sqrt(columns);
  }
  return torch::cat({torch::exp(u - norm), torch::exp(-u - norm)}, -1) /
         std::sqrt(2 * columns);
}

// Pairs a causal stack allows, [T, T] bool.
inline torch::Tensor Causal(int64_t seq_len) {
  return torch::ones({seq_len, seq_len}, torch::kBool).tril();
}

// One attention: its kind, whether it rotates queries and keys, the pairs [T,
// S] or [B, 1, T, S] bool it allows, and its own tensors.
struct Rule {
  AttentionKind kind = MixerKind("linear");
  bool rotary = false;
  torch::Tensor allowed;
  torch::Tensor omega = {};                  // [K, columns]
  torch::Tensor table_u = {}, table_v = {};  // aft-full
  torch::Tensor* first_values = nullptr;     // rwkv7: those of the first layer
};

inline Rule SelfRule(const ModelConfig& config, const torch::Tensor& allowed) {
  AttentionKind kind = config.attention;
  if (kind == MixerKind("conditional-full")) {
    kind = allowed.size(-1) > KeyOf<int64_t>(config, "length_limit")
               ? MixerKind("linear")
               : MixerKind("full");
  }
  return {kind, config.positions == Positions::kRotary, allowed};
}

// Pairs of a softmax kind among those allowed; scores [B, H, T, S].
inline torch::Tensor Chosen(const ModelConfig& config, const Rule& rule,
                            const torch::Tensor& scores) {
  if (rule.kind == MixerKind("local")) {
    const int64_t c = KeyOf<int64_t>(config, "local_context");
    const torch::Tensor distance =  // j - i
        torch::arange(scores.size(3)).unsqueeze(0) -
        torch::arange(scores.size(2)).unsqueeze(1);
    return rule.allowed & (distance >= -(c / 2)) & (distance < (c + 1) / 2);
  }
  if (rule.kind == MixerKind("exact-topk")) {
    const int64_t k = std::min(KeyOf<int64_t>(config, "topk"), scores.size(3));
    const torch::Tensor masked = scores.masked_fill(~rule.allowed, -INFINITY);
    return rule.allowed &
           (masked >= std::get<0>(masked.topk(k, -1)).slice(-1, k - 1));
  }
  return rule.allowed;
}

// Zhai et al. 2021: [B, H, T, S, V] weights of each channel.
inline torch::Tensor AttentionFree(const Rule& rule,
                                   const torch::Tensor& queries,
                                   const torch::Tensor& keys,
                                   const torch::Tensor& values) {
  torch::Tensor exponents = keys.unsqueeze(2);  // [B, H, 1, S, V]
  if (rule.table_u.defined()) {
    const torch::Tensor w = torch::matmul(rule.table_u, rule.table_v.t())
                                .slice(0, 0, queries.size(2))
                                .slice(1, 0, keys.size(2));
    exponents = exponents + w.unsqueeze(-1);
  }
  const torch::Tensor weights = torch::softmax(
      exponents.masked_fill(~rule.allowed.unsqueeze(-1), -INFINITY), 3);
  return torch::sigmoid(queries) * (weights * values.unsqueeze(2)).sum(3);
}

// queries [B, H, T, K], keys [B, H, S, K], values [B, H, S, V] -> [B, H, T, V].
inline torch::Tensor Attend(const ModelConfig& config, const Rule& rule,
                            torch::Tensor queries, torch::Tensor keys,
                            const torch::Tensor& values) {
  const bool linear = rule.kind == MixerKind("linear");
  const bool after =
      rule.rotary && linear && config.rotary_place == RotaryPlace::kAfter;
  const torch::Tensor allowed = rule.allowed;
  if (rule.kind >= MixerKind("aft-full")) {
    return AttentionFree(rule, queries, keys, values);
  }
  if (rule.rotary && !after) {
    queries = Turned(config, queries);
    keys = Turned(config, keys);
  }
  if (!linear) {
    const torch::Tensor scores = torch::matmul(queries, keys.mT()) /
                                 std::sqrt(static_cast<double>(config.d_key));
    return torch::matmul(
        torch::softmax(
            scores.masked_fill(~Chosen(config, rule, scores), -INFINITY), -1),
        values);
  }
  queries = Phi(KeyOf<FeatureMap>(config, "feature_map"), queries, rule.omega);
  keys = Phi(KeyOf<FeatureMap>(config, "feature_map"), keys, rule.omega);
  const torch::Tensor kept = allowed.to(queries.dtype());
  torch::Tensor products = torch::matmul(queries, keys.mT());
  if (KeyOf<FeatureMap>(config, "feature_map") ==
      FeatureMap::kPoly2) {  // 1 + 2 y + y^2
    products =
        (1 + products / std::sqrt(static_cast<double>(config.d_key))).pow(2);
  }
  const torch::Tensor weights = products * kept;
  const torch::Tensor turned =
      after
          ? torch::matmul(Turned(config, queries), Turned(config, keys).mT()) *
                kept
          : weights;
  const torch::Tensor numerators = torch::matmul(turned, values);
  const torch::Tensor denominators = weights.sum(-1, true);
  switch (KeyOf<Denominator>(config, "denominator")) {
    case Denominator::kNone:
      return numerators;
    case Denominator::kCompat:
      return numerators / (denominators + KeyOf<double>(config, "eps"));
    case Denominator::kSigned:  // far from 0 here
    case Denominator::kExact:
      break;
  }
  return numerators / denominators;
}

// Queries from x [B, T, D], keys and values from memory [B, S, D]: [B, T, D].
// config: as the layer sees it.
inline torch::Tensor Attention(const ModelConfig& config,
                               const Weights& weights, const std::string& name,
                               const torch::Tensor& x,
                               const torch::Tensor& memory, Rule rule) {
  if (!config.branches.empty()) {
    torch::Tensor sum = torch::zeros_like(x);
    for (size_t i = 0; i < config.branches.size(); ++i) {
      const ModelConfig& branch = config.branches[i];
      const std::string own = name + ".branches." + std::to_string(i);
      rule.kind = branch.attention;
      sum = sum + branch.branch_factor *
                      Attention(branch, weights, own, x, memory, rule);
    }
    return sum;
  }
  if (HasSoftmaxForm(config)) {
    return SoftmaxLayer(config, weights, name + ".").Mix(x);
  }
  if (IsRecurrent(config)) {
    return RecurrentMix(config, weights, name + ".", x, rule.first_values);
  }
  const auto own = [&](const char* part) {
    const auto found = weights.find(name + ".inner_attention." + part);
    return found == weights.end() ? torch::Tensor() : found->second;
  };
  rule.omega = own("feature_map.omega");
  if (!rule.omega.defined()) {
    rule.omega = own("other_attention.feature_map.omega");
  }
  rule.table_u = own("u");
  rule.table_v = own("v");
  const auto heads = [&](const char* part, const torch::Tensor& from) {
    const torch::Tensor y = Affine(weights, name + part, from);
    return y.unflatten(2, {config.n_heads, -1}).transpose(1, 2);
  };
  const torch::Tensor out = Attend(config, rule, heads(".query_projection", x),
                                   heads(".key_projection", memory),
                                   heads(".value_projection", memory));
  return Affine(weights, name + ".out_projection",
                out.transpose(1, 2).flatten(2));
}

// Row by row: the experts of largest logit, their weights, the shared expert.
inline torch::Tensor Mixture(const ModelConfig& config, const Weights& weights,
                             const std::string& name, const torch::Tensor& x) {
  const MoeForm form = MoeFormOf(config);
  const auto expert = [&](const std::string& from, int64_t e,
                          const torch::Tensor& row) {
    const auto map = [&](const char* which, const torch::Tensor& y) {
      const torch::Tensor& w =
          weights.at(e < 0 ? from + which + ".weight" : from + which);
      return torch::mv(e < 0 ? w : w.select(0, e), y);
    };
    torch::Tensor h = map("linear1", row);
    if (form.part == ExpertPart::kRelu2) {
      h = torch::where(h > 0, h * h, torch::zeros_like(h));
    } else {
      h = (form.part == ExpertPart::kSwiglu
               ? h / (1 + torch::exp(-h))
               : h * 0.5 * (1.0 + torch::erf(h / std::sqrt(2.0)))) *
          map("linear3", row);
    }
    return map("linear2", h);
  };
  std::vector<torch::Tensor> out;
  for (const torch::Tensor& row : x.reshape({-1, x.size(-1)}).unbind(0)) {
    const torch::Tensor logits =
        torch::mv(weights.at(name + ".router.weight"), row);
    const torch::Tensor scores = form.router == RouterKind::kSoftmax
                                     ? torch::softmax(logits, 0)
                                     : 1 / (1 + torch::exp(-logits));
    const torch::Tensor keys =
        form.biased() ? scores + weights.at(name + ".router_bias") : scores;
    const torch::Tensor chosen = std::get<1>(keys.topk(form.per_token));
    const torch::Tensor best = scores.index({chosen});
    torch::Tensor y = torch::zeros_like(row);
    for (int64_t j = 0; j < form.per_token; ++j) {
      const torch::Tensor share =
          form.scale * (form.normalize ? best[j] / best.sum() : best[j]);
      y = y +
          share * expert(name + ".experts.", chosen[j].item<int64_t>(), row);
    }
    if (form.shared_width > 0) {
      torch::Tensor shared = expert(name + ".shared.", -1, row);
      if (form.shared_gate) {
        shared =
            shared / (1 + torch::exp(-torch::mv(
                              weights.at(name + ".shared_gate.weight"), row)));
      }
      y = y + shared;
    }
    out.push_back(y);
  }
  return out.empty() ? x : torch::stack(out).view(x.sizes());
}

// GELU: the exact form, or that with a tanh.
inline torch::Tensor Gelu(const torch::Tensor& u, bool with_tanh) {
  const double root = std::sqrt(2.0 / std::acos(-1.0));
  return u * 0.5 *
         (1.0 + (with_tanh ? torch::tanh(root * (u + 0.044715 * u * u * u))
                           : torch::erf(u / std::sqrt(2.0))));
}

inline torch::Tensor FeedForward(const ModelConfig& config,
                                 const Weights& weights,
                                 const std::string& name,
                                 const torch::Tensor& x) {
  const auto product = [&](const char* map, const torch::Tensor& y) {
    return Affine(weights, name + map, y);
  };
  const bool gated = config.feed_forward == FeedForwardOf("gated-channel-mix");
  if (gated || config.feed_forward == FeedForwardOf("channel-mix")) {
    torch::Tensor before = torch::zeros_like(x.select(1, 0));
    std::vector<torch::Tensor> out;
    for (int64_t t = 0; t < x.size(1); ++t) {  // token by token
      const torch::Tensor row = x.select(1, t);
      const torch::Tensor& share = weights.at(name + ".token_shift");
      const torch::Tensor u =
          product(".linear1", (1 - share) * row + share * before);
      out.push_back(product(".linear2",
                            torch::where(u > 0, u * u, torch::zeros_like(u))));
      if (gated) {
        const torch::Tensor& own = weights.at(name + ".gate_shift");
        const torch::Tensor z =
            product(".gate", (1 - own) * row + own * before);
        out.back() = out.back() / (1 + torch::exp(-z));
      }
      before = row;
    }
    return torch::stack(out, 1);
  }
  const std::string part = Name(config.feed_forward);
  if (part == "swiglu" || part == "geglu" || part == "geglu-tanh") {
    const torch::Tensor gate = product(".linear1", x);
    const torch::Tensor curve = part == "swiglu"
                                    ? gate / (1 + torch::exp(-gate))
                                    : Gelu(gate, part == "geglu-tanh");
    return product(".linear2", curve * product(".linear3", x));
  }
  if (part == "moe") return Mixture(config, weights, name, x);
  if (part == "relu2") {
    const torch::Tensor u = product(".linear1", x);
    return product(".linear2",
                   torch::where(u > 0, u * u, torch::zeros_like(u)));
  }
  const torch::Tensor u = Affine(weights, name + ".linear1", x);
  return Affine(weights, name + ".linear2",
                config.activation == Activation::kRelu
                    ? torch::where(u > 0, u, torch::zeros_like(u))
                    : Gelu(u, config.activation == Activation::kGeluTanh));
}

// The residual sum with a part, with its norms by their place.
template <typename Part>
torch::Tensor Summed(const ModelConfig& config, const Weights& weights,
                     const std::string& norm, const torch::Tensor& x,
                     const Part& part) {
  const auto by = [&](const char* ending, const torch::Tensor& y) {
    return Normed(config, weights, norm + ending, y);
  };
  const double factor = config.residual_factor;
  switch (config.norm) {
    case Norm::kPost:
      return by("", x + factor * part(x));
    case Norm::kPre:
      return x + factor * part(by("", x));
    case Norm::kAfter:
      return x + factor * by("", part(x));
    case Norm::kBoth:
      return x + factor * by("_after", part(by("", x)));
    case Norm::kNone:
      break;
  }
  return x + factor * part(x);
}

// config: as the layer sees it.
inline torch::Tensor Layer(const ModelConfig& config, const Weights& weights,
                           const std::string& name, const torch::Tensor& x,
                           const torch::Tensor& allowed,
                           torch::Tensor* first_values = nullptr) {
  const auto attention = [&](const torch::Tensor& u) {
    Rule rule = SelfRule(config, allowed);
    rule.first_values = first_values;
    return Attention(config, weights, name + ".attention", u, u, rule);
  };
  const torch::Tensor x1 =
      Summed(config, weights, name + ".norm1", x, attention);
  if (std::string(Name(config.feed_forward)) == "none") return x1;
  const auto part = [&](const torch::Tensor& u) {
    return FeedForward(config, weights, name, u);
  };
  if (config.parallel_residual) {
    return x1 + Summed(config, weights, name + ".norm2", x, part) - x;
  }
  return Summed(config, weights, name + ".norm2", x1, part);
}

// x [B, U, D]; memory [B, T, D], of which `kept` [B, 1, 1, T] may be read.
// config: as the layer sees it; cross_config: as its cross attention does.
inline torch::Tensor DecoderLayer(
    const ModelConfig& config, const ModelConfig& cross_config,
    const Weights& weights, const std::string& name, const torch::Tensor& x,
    const torch::Tensor& memory, const torch::Tensor& kept) {
  const auto self = [&](const torch::Tensor& u) {
    return Attention(config, weights, name + ".self_attention", u, u,
                     SelfRule(config, Causal(u.size(1))));
  };
  const auto cross = [&](const torch::Tensor& u) {
    const Rule rule = {cross_config.attention, false, kept};
    return Attention(cross_config, weights, name + ".cross_attention", u,
                     memory, rule);
  };
  const torch::Tensor x1 = Summed(config, weights, name + ".norm1", x, self);
  const torch::Tensor x2 = Summed(config, weights, name + ".norm2", x1, cross);
  return Summed(config, weights, name + ".norm3", x2,
                [&](const torch::Tensor& u) {
                  return FeedForward(config, weights, name, u);
                });
}

// x [B, T, width] with its positions, [B, T, D].
inline torch::Tensor Placed(const ModelConfig& config, const Weights& weights,
                            const std::string& position_table,
                            torch::Tensor x) {
  const int64_t seq_len = x.size(1);
  if (config.positions == Positions::kLearned) {
    const torch::Tensor& rows = weights.at(position_table + ".weight");
    std::vector<torch::Tensor> used;
    for (int64_t t = 0; t < seq_len; ++t) {
      used.push_back(rows[t]);
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
  if (!config.input_norm) return x;
  return Normed(
      config, weights,
      position_table.starts_with("target") ? "target_input_norm" : "input_norm",
      x);
}

// tokens [B, T] -> [B, T, D], from the tables with these names.
inline torch::Tensor Embedded(const ModelConfig& config, const Weights& weights,
                              const std::string& token_table,
                              const std::string& position_table,
                              const torch::Tensor& tokens) {
  return Placed(config, weights, position_table,
                config.embedding_factor *
                    weights.at(token_table + ".weight").index({tokens}));
}

// The stack under `prefix` ("", "encoder."): layers and final norm.
inline torch::Tensor Stack(const ModelConfig& config, const Weights& weights,
                           const std::string& prefix, torch::Tensor x,
                           const torch::Tensor& allowed) {
  torch::Tensor first_values;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    x = Layer(LayerView(config, i), weights,
              prefix + "layers." + std::to_string(i), x, allowed,
              &first_values);
  }
  return config.final_norm ? Normed(config, weights, prefix + "norm", x) : x;
}

inline torch::Tensor Head(const ModelConfig& config, const Weights& weights,
                          const std::string& tied_table,
                          const torch::Tensor& x) {
  const torch::Tensor& table = weights.at(
      config.tied_head ? tied_table + ".weight" : "predictor.weight");
  torch::Tensor logits = torch::matmul(x, table.t());
  if (config.head_bias) logits = logits + weights.at("predictor.bias");
  logits = config.logit_factor * logits;
  const double cap = config.logit_softcap;
  return cap == 0 ? logits : cap * torch::tanh(logits / cap);
}

/// tokens [B, T] -> logits [B, T, vocab], the dtype of the weights.
inline torch::Tensor Logits(const ModelConfig& config, const Weights& weights,
                            const torch::Tensor& tokens) {
  const torch::Tensor x =
      Embedded(config, weights, "value_embedding", "pos_embedding", tokens);
  return Head(config, weights, "value_embedding",
              Stack(config, weights, "", x, Causal(tokens.size(1))));
}

/// tokens [1, T], all of them valid -> logits [1, n_classes].
inline torch::Tensor ClassLogits(const ModelConfig& config,
                                 const Weights& weights,
                                 const torch::Tensor& tokens) {
  const torch::Tensor x =
      Embedded(config, weights, "value_embedding", "pos_embedding", tokens);
  const torch::Tensor all =
      torch::ones({tokens.size(1), tokens.size(1)}, torch::kBool);
  return Head(config, weights, "", Stack(config, weights, "", x, all).mean(1));
}

/// frames [1, T, input_dim], all of them valid -> logits [1, T, n_classes].
inline torch::Tensor FrameLogits(const ModelConfig& config,
                                 const Weights& weights,
                                 const torch::Tensor& frames) {
  const torch::Tensor x = Placed(config, weights, "pos_embedding",
                                 Affine(weights, "input_projection", frames));
  const torch::Tensor all =
      torch::ones({frames.size(1), frames.size(1)}, torch::kBool);
  return Head(config, weights, "", Stack(config, weights, "", x, all));
}

/// tokens [1, T] and target_in [1, U], all of them valid -> [1, U, vocab].
inline torch::Tensor TargetLogits(const ModelConfig& config,
                                  const Weights& weights,
                                  const torch::Tensor& tokens,
                                  const torch::Tensor& target_in) {
  const int64_t source = tokens.size(1);
  const torch::Tensor memory = Stack(
      config, weights, "encoder.",
      Embedded(config, weights, "value_embedding", "pos_embedding", tokens),
      torch::ones({source, source}, torch::kBool));
  torch::Tensor x = Embedded(config, weights, "target_embedding",
                             "target_pos_embedding", target_in);
  const torch::Tensor kept = torch::ones({1, 1, 1, source}, torch::kBool);
  for (int64_t i = 0; i < config.n_decoder_layers; ++i) {
    x = DecoderLayer(LayerView(config, i), CrossView(config), weights,
                     "decoder.layers." + std::to_string(i), x, memory, kept);
  }
  if (config.final_norm) x = Normed(config, weights, "decoder.norm", x);
  return Head(config, weights, "target_embedding", x);
}

/// Largest |a - b|, relative to the largest entry of b where that is above 1.
inline double LargestError(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor difference =
      a.to(torch::kFloat64) - b.to(torch::kFloat64);
  return difference.abs().max().item<double>() /
         std::max(1.0, b.abs().max().item<double>());
}

}  // namespace tarn::plain
