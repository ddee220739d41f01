// The softmax attention of hybrids (mixers/softmax/form.h) again, from
// plain operators and its quadratic form, for plain_model.h.
#pragma once

#include <cmath>
#include <map>
#include <string>

#include "config/model_config.h"
#include "torch_nn/torch.h"

namespace tarn::plain {

// x [B, T, D] -> [B, T, D]. prefix: of the layer's tensors.
inline torch::Tensor GatedSoftmaxMix(
    const ModelConfig& c, const std::map<std::string, torch::Tensor>& weights,
    const std::string& prefix, const torch::Tensor& x) {
  const int64_t key_heads = KeyOf<int64_t>(c, "key_heads") > 0 ? KeyOf<int64_t>(c, "key_heads") : c.n_heads;
  const int64_t seq_len = x.size(1);
  const auto map = [&](const std::string& name, const torch::Tensor& rows) {
    return torch::matmul(
        rows, weights.at(prefix + name + "_projection.weight").t());
  };
  const auto heads = [&](const torch::Tensor& rows, int64_t count) {
    return rows.view({x.size(0), seq_len, count, -1}).transpose(1, 2);
  };
  const auto prepared = [&](const std::string& name, int64_t count) {
    torch::Tensor y = heads(map(name, x), count);  // [B, heads, T, K]
    if (KeyOf<bool>(c, "query_key_norm")) {
      y = y / torch::sqrt(y.pow(2).mean(-1, true) + c.norm_eps) *
          weights.at(prefix + name + "_norm.weight");
    }
    if (c.positions != Positions::kRotary) return y;
    const int64_t width = KeyOf<int64_t>(c, "rotary_width") > 0 ? KeyOf<int64_t>(c, "rotary_width") : c.d_key;
    const torch::Tensor angles =
        torch::arange(seq_len, x.options()).unsqueeze(1) *
        torch::pow(c.rotary_base, torch::arange(width / 2, x.options()) *
                                      (-2.0 / static_cast<double>(width)));
    const torch::Tensor a = y.slice(3, 0, width / 2),
                        b = y.slice(3, width / 2, width);
    return torch::cat({a * angles.cos() - b * angles.sin(),
                       b * angles.cos() + a * angles.sin(),
                       y.slice(3, width)},
                      3);
  };
  const torch::Tensor q = prepared("query", c.n_heads);
  std::vector<torch::Tensor> out;
  const torch::Tensor k = prepared("key", key_heads),
                      v = heads(map("value", x), key_heads);
  const torch::Tensor seen =
      torch::ones({seq_len, seq_len}, torch::kBool).tril();
  for (int64_t h = 0; h < c.n_heads; ++h) {
    const int64_t g = h * key_heads / c.n_heads;
    torch::Tensor scores =
        torch::matmul(q.select(1, h), k.select(1, g).transpose(1, 2)) /
        std::sqrt(static_cast<double>(c.d_key));
    scores = scores.masked_fill(~seen, -INFINITY);
    out.push_back(torch::matmul(torch::softmax(scores, -1), v.select(1, g)));
  }
  torch::Tensor rows = torch::cat(out, -1);
  if (KeyOf<bool>(c, "output_gate")) rows = rows / (1 + torch::exp(-map("gate", x)));
  return map("out", rows);
}

}  // namespace tarn::plain
