// Softmax attention (mixers/softmax/form.h) again, from plain operators and its
// quadratic form, for plain_model.h. Which parts a layer has is read from its
// tensors.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "torch_nn/torch.h"

namespace tarn::plain {

// One layer of a causal stack: x [B, T, D] -> [B, T, D].
class SoftmaxLayer {
 public:
  using Weights = std::map<std::string, torch::Tensor>;

  // prefix: of the layer's tensors.
  SoftmaxLayer(const ModelConfig& c, const Weights& weights, std::string prefix)
      : c_(c), weights_(weights), prefix_(std::move(prefix)) {}

  torch::Tensor Mix(const torch::Tensor& x) const {
    const auto [q, k, v] =
        Has("latent_projection.weight") ? Latent(x) : Usual(x);
    std::vector<torch::Tensor> out;
    for (int64_t h = 0; h < c_.n_heads; ++h) {
      const int64_t g = h * k.size(1) / c_.n_heads;
      out.push_back(torch::matmul(
          HeadWeights(
              h, torch::matmul(q.select(1, h), k.select(1, g).transpose(1, 2))),
          v.select(1, g)));
    }
    torch::Tensor rows = torch::cat(out, -1);
    if (Has("gate_projection.weight")) {
      rows = rows / (1 + torch::exp(-Map("gate", x)));
    }
    return Map("out", rows);
  }

 private:
  struct Heads {
    torch::Tensor q, k, v;  // [B, heads, T, width]
  };

  bool Has(const std::string& name) const {
    return weights_.count(prefix_ + name) > 0;
  }
  torch::Tensor Map(const std::string& name, const torch::Tensor& rows) const {
    torch::Tensor y = torch::matmul(
        rows, weights_.at(prefix_ + name + "_projection.weight").t());
    if (Has(name + "_projection.bias")) {
      y = y + weights_.at(prefix_ + name + "_projection.bias");
    }
    return y;
  }
  torch::Tensor Split(const torch::Tensor& rows, int64_t count) const {
    return rows.unflatten(2, {count, -1}).transpose(1, 2);
  }
  torch::Tensor Normed(const std::string& name, const torch::Tensor& y) const {
    const double given = KeyOf<double>(c_, "head_norm_eps");
    const double eps = given > 0 ? given : c_.norm_eps;
    return y / torch::sqrt(y.pow(2).mean(-1, true) + eps) *
           weights_.at(prefix_ + name + "_norm.weight");
  }

  bool Rotates() const {
    return c_.positions == Positions::kRotary && KeyOf<bool>(c_, "rotate");
  }

  // The first `width` channels of y [B, heads, T, K] rotated.
  torch::Tensor Rotated(const torch::Tensor& y, int64_t width) const {
    const double own = KeyOf<double>(c_, "own_rotary_base");
    const torch::Tensor angles =
        torch::arange(y.size(2), y.options()).unsqueeze(1) *
        torch::pow(own > 0 ? own : c_.rotary_base,
                   torch::arange(width / 2, y.options()) *
                       (-2.0 / static_cast<double>(width)));
    const torch::Tensor a = y.slice(3, 0, width / 2),
                        b = y.slice(3, width / 2, width);
    return torch::cat({a * angles.cos() - b * angles.sin(),
                       b * angles.cos() + a * angles.sin(), y.slice(3, width)},
                      3);
  }

  Heads Usual(const torch::Tensor& x) const {
    const int64_t given = KeyOf<int64_t>(c_, "key_heads");
    const int64_t key_heads = given > 0 ? given : c_.n_heads;
    const auto prepared = [&](const std::string& name, int64_t count) {
      torch::Tensor y = Map(name, x);
      const bool normed = Has(name + "_norm.weight");
      const bool all =
          normed &&
          weights_.at(prefix_ + name + "_norm.weight").size(0) == y.size(2);
      if (all) y = Normed(name, y);
      y = Split(y, count);
      if (normed && !all) y = Normed(name, y);
      if (!Rotates()) return y;
      const int64_t width = KeyOf<int64_t>(c_, "rotary_width");
      return Rotated(y, width > 0 ? width : c_.d_key);
    };
    return {prepared("query", c_.n_heads), prepared("key", key_heads),
            Split(Map("value", x), key_heads)};
  }

  Heads Latent(const torch::Tensor& x) const {
    const int64_t width = KeyOf<int64_t>(c_, "latent_width");
    const torch::Tensor row = Map("latent", x);
    const torch::Tensor c = Normed("latent", row.slice(2, 0, width));
    torch::Tensor shared = Split(row.slice(2, width), 1);
    torch::Tensor q =
        Split(Map("query", Has("query_down_projection.weight")
                               ? Normed("query_down", Map("query_down", x))
                               : x),
              c_.n_heads);
    const int64_t own = c_.d_key - shared.size(3);
    if (Rotates()) {
      shared = Rotated(shared, shared.size(3));
      q = torch::cat(
          {q.slice(3, 0, own), Rotated(q.slice(3, own), shared.size(3))}, 3);
    }
    const torch::Tensor keys = Split(Map("key", c), c_.n_heads);
    return {q, torch::cat({keys, shared.expand({-1, c_.n_heads, -1, -1})}, 3),
            Split(Map("value", c), c_.n_heads)};
  }

  // Weights of head h from its products [B, T, T].
  torch::Tensor HeadWeights(int64_t h, torch::Tensor scores) const {
    const int64_t seq_len = scores.size(1);
    const double scale = KeyOf<double>(c_, "score_scale");
    const double cap = KeyOf<double>(c_, "softcap");
    scores = scores *
             (scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(c_.d_key)));
    if (cap > 0) scores = cap * torch::tanh(scores / cap);
    const bool local = std::string(Name(c_.attention)) == "local";
    const int64_t last = local ? KeyOf<int64_t>(c_, "local_context") / 2 + 1
                               : KeyOf<int64_t>(c_, "window");
    const torch::Tensor pairs = torch::ones({seq_len, seq_len}, torch::kBool);
    torch::Tensor seen = pairs.tril();
    if (last > 0) seen = seen & pairs.triu(1 - last);
    scores = scores.masked_fill(~seen, -INFINITY);
    if (!Has("sinks")) return torch::softmax(scores, -1);
    // One more score, whose weight is dropped.
    const torch::Tensor sink =
        weights_.at(prefix_ + "sinks")[h].expand({scores.size(0), seq_len, 1});
    return torch::softmax(torch::cat({scores, sink}, -1), -1)
        .slice(-1, 0, seq_len);
  }

  const ModelConfig& c_;
  const Weights& weights_;
  const std::string prefix_;
};

// Whether a layer of a causal stack is more than plain_model.h's own attention.
inline bool HasSoftmaxForm(const ModelConfig& layer) {
  const std::string name = Name(layer.attention);
  if (name == "gated-full") return true;
  if (name != "full" && name != "local") return false;
  for (const char* key :
       {"key_heads", "window", "qkv_bias", "out_bias", "head_norm", "head_gate",
        "score_scale", "softcap", "sinks", "rotate", "own_rotary_base",
        "latent_width"}) {
    if (layer.own.count(key) > 0) return true;
  }
  return false;
}

}  // namespace tarn::plain
