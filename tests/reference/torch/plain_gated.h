// The gated mixers again, token by token from their definitions, for
// plain_model.h: by name, with no table and no operator of the modules.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "torch_nn/torch.h"

namespace tarn::plain {

inline bool IsGated(const ModelConfig& layer) {
  const std::string name = Name(layer.attention);
  for (const char* known : {"retnet", "lightning", "mamba2", "gla", "hgrn2",
                            "deltanet", "gdn", "kda", "norm-linear"}) {
    if (name == known) return true;
  }
  return false;
}

inline torch::Tensor Logistic(const torch::Tensor& x) {
  return 1 / (1 + torch::exp(-x));
}

// What the recurrence of a token reads, [B, H, width] each; gamma [B, H, 1] or
// [B, H, K], beta [B, H].
struct GatedToken {
  torch::Tensor q, k, v, gamma, beta, convolved;
};

// Everything about one layer; `at` finds its tensors.
class GatedLoop {
 public:
  GatedLoop(const ModelConfig& layer,
            const std::map<std::string, torch::Tensor>& weights,
            const std::string& prefix)
      : c_(layer),
        name_(Name(layer.attention)),
        weights_(weights),
        prefix_(prefix) {
    const bool grouped = Is({"mamba2", "deltanet", "gdn", "kda"});
    key_heads_ = grouped && KeyOf<int64_t>(c_, "key_heads") > 0
                     ? KeyOf<int64_t>(c_, "key_heads")
                     : c_.n_heads;
  }

  // Of HGRN2: fixed, or by the definition from the logits of all layers.
  torch::Tensor LowerBounds() const {
    if (!KeyOf<bool>(c_, "learned_bounds")) return At("lower_bound");
    const size_t at = prefix_.find("layers.");
    const int64_t layer =
        at == std::string::npos ? 0 : std::stol(prefix_.substr(at + 7));
    torch::Tensor logits;
    for (const auto& [name, tensor] : weights_) {
      if (name.ends_with("bound_logits")) logits = tensor;
    }
    const torch::Tensor shares = logits.exp() / logits.exp().sum(0, true);
    return shares.slice(0, 1, layer + 1).sum(0);
  }

  // x [B, T, D] -> [B, T, D].
  torch::Tensor Mix(const torch::Tensor& x) {
    if (Is({"norm-linear"})) return NormLinear(x);
    torch::Tensor state = torch::zeros(
        {x.size(0), c_.n_heads, c_.d_key, c_.d_value}, x.options());
    std::vector<torch::Tensor> out;
    for (int64_t t = 0; t < x.size(1); ++t) {
      const torch::Tensor row = x.select(1, t);  // [B, D]
      const GatedToken token = Token(row, t);
      state = token.gamma.unsqueeze(-1) * state;
      torch::Tensor written = token.v;
      if (Is({"deltanet", "gdn", "kda"})) {
        const torch::Tensor held =
            (state * token.k.unsqueeze(-1)).sum(2);  // [B, H, V]
        written = token.beta.unsqueeze(-1) * (token.v - held);
      }
      state = state + token.k.unsqueeze(-1) * written.unsqueeze(2);
      torch::Tensor o = (state * token.q.unsqueeze(-1)).sum(2);
      if (!Is({"lightning", "mamba2"})) {
        o = o / std::sqrt(static_cast<double>(c_.d_key));
      }
      if (Is({"mamba2"})) o = o + At("D").unsqueeze(-1) * token.convolved;
      out.push_back(Map("out", Normed(o, row)));
    }
    return out.empty() ? torch::zeros_like(x) : torch::stack(out, 1);
  }

 private:
  bool Is(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (name_ == name) return true;
    }
    return false;
  }
  torch::Tensor At(const std::string& name) const {
    return weights_.at(prefix_ + name);
  }
  torch::Tensor Map(const std::string& name, const torch::Tensor& x) const {
    torch::Tensor y = torch::matmul(x, At(name + "_projection.weight").t());
    const auto bias = weights_.find(prefix_ + name + "_projection.bias");
    return bias == weights_.end() ? y : y + bias->second;
  }
  // phi of queries or keys [B, T, H, K], by the word's place in the table.
  torch::Tensor Feature(const std::string& side, const torch::Tensor& x) const {
    torch::Tensor y;
    switch (KeyOf<int64_t>(c_, "qk_map")) {
      case 0:
        y = torch::where(x > 0, x + 1, torch::exp(x.clamp_max(0)));
        break;
      case 2:
        y = x.clamp_min(0);
        break;
      case 3:
        y = Map(side + "_map", x) * Map(side + "_factor", x);
        break;
      case 4:
        y = Map(side + "_map", x).clamp_min(0);
        break;
      case 5:
        y = torch::exp(2 * Map(side + "_map", x));
        y = torch::cat({y, 1 / y}, -1);
        y = y / y.sum(-1, true);
        break;
      case 6: {
        const torch::Tensor r =
            torch::cat({x.clamp_min(0), (-x).clamp_min(0)}, -1);
        std::vector<torch::Tensor> parts;
        for (int64_t j = 1; j <= 4; ++j) {
          parts.push_back(r * torch::cat({r.slice(-1, r.size(-1) - j),
                                          r.slice(-1, 0, r.size(-1) - j)},
                                         -1));
        }
        y = torch::cat(parts, -1);
        break;
      }
      default:
        y = x;
    }
    const bool unit =
        KeyOf<bool>(c_, side == "query" ? "unit_queries" : "unit_keys");
    return unit ? y / (y.sum(-1, true) + 1e-4) : y;
  }

  // All pairs of tokens at once: (phi(Q) phi(K)^T C^-1/2, lower part) V.
  torch::Tensor NormLinear(const torch::Tensor& x) const {
    const auto heads = [&](const char* name) {  // [B, H, T, width]
      return Map(name, x).unflatten(2, {c_.n_heads, -1}).transpose(1, 2);
    };
    const torch::Tensor q = Feature("query", heads("query"));
    const torch::Tensor k = Feature("key", heads("key"));
    const torch::Tensor scores = torch::matmul(q, k.transpose(-1, -2)).tril() /
                                 std::sqrt(static_cast<double>(q.size(-1)));
    torch::Tensor o = torch::matmul(scores, heads("value"));
    if (KeyOf<bool>(c_, "divided_sums")) {
      o = o / (scores.sum(-1, true) + 1e-10);
    }
    std::vector<torch::Tensor> out;
    for (int64_t t = 0; t < x.size(1); ++t) {
      out.push_back(Map("out", Normed(o.select(2, t), x.select(1, t))));
    }
    return out.empty() ? torch::zeros_like(x) : torch::stack(out, 1);
  }

  torch::Tensor Heads(const torch::Tensor& x, int64_t heads) const {
    return x.view({x.size(0), heads, -1});
  }
  static torch::Tensor Silu(const torch::Tensor& x) { return x * Logistic(x); }

  // What is convolved: the last W rows [B, C], each tap its own.
  torch::Tensor Convolved(const torch::Tensor& row) {
    rows_.push_back(row);
    const int64_t width = KeyOf<int64_t>(c_, "conv_width");
    if (width == 0) return Silu(row);
    torch::Tensor sum = torch::zeros_like(row);
    for (int64_t back = 0; back < width; ++back) {
      const int64_t from = static_cast<int64_t>(rows_.size()) - 1 - back;
      if (from < 0) break;
      sum = sum + At("convolution.weight").select(1, width - 1 - back) *
                      rows_[static_cast<size_t>(from)];
    }
    if (Is({"mamba2"})) sum = sum + At("convolution.bias");
    return Silu(sum);
  }

  // Pairs (i, i + K / 2) of heads rotated by t base^(-2 i / K).
  torch::Tensor Turned(const torch::Tensor& x, int64_t t) const {
    const int64_t half = c_.d_key / 2;
    const torch::Tensor angles =
        static_cast<double>(t) *
        torch::pow(c_.rotary_base, -2.0 * torch::arange(half, x.options()) /
                                       static_cast<double>(c_.d_key));
    const torch::Tensor a = x.slice(-1, 0, half), b = x.slice(-1, half);
    return torch::cat({a * angles.cos() - b * angles.sin(),
                       a * angles.sin() + b * angles.cos()},
                      -1);
  }

  GatedToken Token(const torch::Tensor& x, int64_t t) {
    const int64_t keys = key_heads_ * c_.d_key;
    torch::Tensor q = Map("query", x), v = Map("value", x), k;
    if (!Is({"hgrn2"})) k = Map("key", x);
    if (Is({"mamba2", "deltanet", "gdn", "kda"})) {
      const torch::Tensor all = Convolved(torch::cat({q, k, v}, 1));
      q = all.slice(1, 0, keys);
      k = all.slice(1, keys, 2 * keys);
      v = all.slice(1, 2 * keys);
    }
    if (Is({"lightning", "hgrn2"})) q = Silu(q);
    if (Is({"lightning"})) k = Silu(k), v = Silu(v);
    GatedToken token;
    token.v = token.convolved = Heads(v, c_.n_heads);
    const auto ones = torch::ones({x.size(0), c_.n_heads, 1}, x.options());
    token.gamma = ones;
    if (Is({"retnet", "lightning"})) {
      token.gamma = ones * At("log_decay").exp().unsqueeze(-1);
    }
    if (Is({"mamba2", "gdn"})) {
      torch::Tensor dt = torch::log(
          1 + torch::exp(Map("decay", x) + At("dt_bias")));  // [B, H]
      if (Is({"mamba2"})) {
        const double most = KeyOf<double>(c_, "most_step");
        if (most > 0) dt = dt.clamp_max(most);
        dt = dt.clamp_min(KeyOf<double>(c_, "least_step"));
      }
      token.gamma = torch::exp(-At("A_log").exp() * dt).unsqueeze(-1);
      if (Is({"mamba2"})) token.v = dt.unsqueeze(-1) * token.convolved;
    }
    if (Is({"kda"})) {
      const torch::Tensor dt =
          torch::log(1 + torch::exp(Map("decay_up", Map("decay_down", x)) +
                                    At("dt_bias")));
      token.gamma =
          torch::exp(-At("A_log").exp().unsqueeze(-1) * Heads(dt, c_.n_heads));
    }
    if (Is({"gla"})) {
      token.gamma = Heads(
          torch::pow(Logistic(Map("decay_up", Map("decay_down", x))), 1.0 / 16),
          c_.n_heads);
    }
    if (Is({"hgrn2"})) {
      const torch::Tensor l = LowerBounds();
      const torch::Tensor f = l + (1 - l) * Logistic(Map("decay", x));
      k = 1 - f;
      token.gamma = Heads(f, c_.n_heads);
    }
    if (Is({"deltanet", "gdn", "kda"})) {
      token.beta = Logistic(Map("beta", x)) *
                   (KeyOf<bool>(c_, "negative_eigenvalues") ? 2.0 : 1.0);
    }
    token.q = Heads(q, key_heads_);
    token.k = Heads(k, key_heads_);
    if (Is({"deltanet", "gdn", "kda"})) {
      const auto unit = [](const torch::Tensor& y) {
        return y / torch::sqrt(y.pow(2).sum(-1, true) + 1e-6);
      };
      token.q = unit(token.q);
      token.k = unit(token.k);
    }
    if (Is({"retnet"}) && c_.positions == Positions::kRotary) {
      token.q = Turned(token.q, t);
      token.k = Turned(token.k, t);
    }
    const int64_t share = c_.n_heads / key_heads_;
    token.q = token.q.repeat_interleave(share, 1);
    token.k = token.k.repeat_interleave(share, 1);
    return token;
  }

  // o [B, H, V] of the row x [B, D] -> [B, H V].
  torch::Tensor Normed(const torch::Tensor& o, const torch::Tensor& x) const {
    std::string gate = std::vector<std::string>{
        "own", "none", "silu", "sigmoid"}[KeyOf<size_t>(c_, "gate_activation")];
    if (gate == "own" || Is({"mamba2"})) {
      gate = Is({"retnet", "gla", "gdn", "mamba2"}) ? "silu"
             : Is({"lightning", "kda"})             ? "sigmoid"
                                                    : "none";
    }
    torch::Tensor z;
    if (gate != "none") {
      z = Is({"kda"}) ? Map("gate_up", Map("gate_down", x)) : Map("gate", x);
      z = gate == "silu" ? Silu(z) : Logistic(z);
    }
    torch::Tensor y = o.flatten(1);
    const bool before = Is({"mamba2"}) && !KeyOf<bool>(c_, "mamba2_norm_first");
    if (before) y = y * z;
    if (Is({"mamba2"}) && !KeyOf<bool>(c_, "mamba2_norm")) return y;
    const int64_t groups = Is({"lightning", "hgrn2"}) ? 1
                           : Is({"mamba2"})           ? key_heads_
                                                      : c_.n_heads;
    torch::Tensor heads = Heads(y, groups);
    const double given = KeyOf<double>(c_, "output_norm_eps");
    heads = heads / torch::sqrt(heads.pow(2).mean(-1, true) +
                                (given > 0 ? given : c_.norm_eps));
    const bool whole = Is({"lightning", "hgrn2", "mamba2"});
    if (!whole) heads = heads * At("norm.weight");
    y = heads.flatten(1);
    if (whole) y = y * At("norm.weight");
    return !z.defined() || before ? y : y * z;
  }

  const ModelConfig& c_;
  const std::string name_;
  const std::map<std::string, torch::Tensor>& weights_;
  const std::string prefix_;
  int64_t key_heads_;
  std::vector<torch::Tensor> rows_;  // inputs of the convolution so far
};

// prefix: of the layer's tensors, "layers.0.attention." or "".
inline torch::Tensor GatedMix(
    const ModelConfig& layer,
    const std::map<std::string, torch::Tensor>& weights,
    const std::string& prefix, const torch::Tensor& x) {
  return GatedLoop(layer, weights, prefix).Mix(x);
}

}  // namespace tarn::plain
