// Mamba-1 again, token by token from its equations (Gu and Dao 2023, arXiv
// 2312.00752, algorithm 2), for plain_model.h.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "torch_nn/torch.h"

namespace tarn::plain {

inline bool IsMamba(const ModelConfig& layer) {
  return std::string(Name(layer.attention)) == "mamba1";
}

// x [B, T, D] -> [B, T, D]. prefix: of the layer's tensors.
inline torch::Tensor MambaMix(
    const ModelConfig& layer,
    const std::map<std::string, torch::Tensor>& weights,
    const std::string& prefix, const torch::Tensor& x) {
  const auto at = [&](const std::string& name) {
    return weights.at(prefix + name);
  };
  const auto map = [&](const std::string& name, const torch::Tensor& row) {
    const torch::Tensor y =
        torch::matmul(row, at(name + "_projection.weight").t());
    const auto bias = weights.find(prefix + name + "_projection.bias");
    return bias == weights.end() ? y : y + bias->second;
  };
  // What a token chooses, normalised where the layer says so.
  const auto selected = [&](const std::string& name, const torch::Tensor& u) {
    torch::Tensor made = map(name, u);
    if (!KeyOf<bool>(layer, "selection_norm")) return made;
    const double given = KeyOf<double>(layer, "selection_norm_eps");
    const double eps = given > 0 ? given : layer.norm_eps;
    return made / torch::sqrt(made.pow(2).mean(-1, true) + eps) *
           at(name + "_norm.weight");
  };
  const auto silu = [](const torch::Tensor& y) {
    return y / (1 + torch::exp(-y));
  };
  const int64_t width = KeyOf<int64_t>(layer, "conv_width");
  const torch::Tensor rates = -torch::exp(at("A_log"));  // [C, N]
  torch::Tensor state =
      torch::zeros({x.size(0), rates.size(0), rates.size(1)}, x.options());
  std::vector<torch::Tensor> values, out;
  for (int64_t t = 0; t < x.size(1); ++t) {
    const torch::Tensor row = x.select(1, t);
    values.push_back(map("value", row));
    torch::Tensor u = values.back();
    if (width > 0) {
      u = at("convolution.bias").expand_as(u);
      for (int64_t back = 0; back < width && back <= t; ++back) {
        u = u + values[static_cast<size_t>(t - back)] *
                    at("convolution.weight").select(1, width - 1 - back);
      }
    }
    u = silu(u);
    const torch::Tensor dt = torch::log1p(torch::exp(
        map("decay_up", selected("decay_down", u)) + at("dt_bias")));  // [B, C]
    state = torch::exp(dt.unsqueeze(-1) * rates) * state +
            (dt * u).unsqueeze(-1) * selected("key", u).unsqueeze(1);
    const torch::Tensor y =
        (state * selected("query", u).unsqueeze(1)).sum(-1) + at("D") * u;
    out.push_back(map("out", y * silu(map("gate", row))));
  }
  return out.empty() ? torch::zeros_like(x) : torch::stack(out, 1);
}

}  // namespace tarn::plain
