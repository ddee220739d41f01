// The layers of LFM2 (arXiv 2511.23404), Griffin (arXiv 2402.19427, eq.
// (1)-(4)) and xLSTM (arXiv 2405.04517, eq. (19)-(27)) again, token by token
// from their equations, for plain_model.h.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "torch_nn/torch.h"

namespace tarn::plain {

inline bool IsShortConv(const ModelConfig& layer) {
  return std::string(Name(layer.attention)) == "short-conv";
}
inline bool IsLru(const ModelConfig& layer) {
  return std::string(Name(layer.attention)) == "rg-lru";
}
inline bool IsMlstm(const ModelConfig& layer) {
  return std::string(Name(layer.attention)) == "mlstm";
}

class ConvolutionLoop {
 public:
  // prefix: of the layer's tensors.
  ConvolutionLoop(const std::map<std::string, torch::Tensor>& weights,
                  std::string prefix)
      : weights_(weights), prefix_(std::move(prefix)) {}

  // x [B, T, D] -> [B, T, D].
  torch::Tensor ShortConv(const torch::Tensor& x) const {
    std::vector<torch::Tensor> written, out;
    for (int64_t t = 0; t < x.size(1); ++t) {
      const torch::Tensor row = x.select(1, t);
      written.push_back(Map("key", row) * Map("value", row));
      out.push_back(Map("out", Map("query", row) * Filtered(written)));
    }
    return out.empty() ? torch::zeros_like(x) : torch::stack(out, 1);
  }

  torch::Tensor Lru(const ModelConfig& layer, const torch::Tensor& x) const {
    std::vector<torch::Tensor> values, out;
    const torch::Tensor lambda = At("Lambda");
    torch::Tensor h = torch::zeros({x.size(0), lambda.size(0)}, x.options());
    for (int64_t t = 0; t < x.size(1); ++t) {
      const torch::Tensor row = x.select(1, t);
      values.push_back(Map("value", row));
      const torch::Tensor u = KeyOf<int64_t>(layer, "conv_width") > 0
                                  ? Filtered(values)
                                  : values.back();
      const torch::Tensor a = torch::exp(-8 * torch::log1p(torch::exp(lambda)) *
                                         Gate(layer, "recurrence_gate", u));
      const torch::Tensor root =
          t == 0 ? torch::ones_like(a) : torch::sqrt(1 - a * a);
      h = a * h + root * Gate(layer, "input_gate", u) * u;
      const torch::Tensor z = Map("gate", row);
      const torch::Tensor gelu =
          z / 2 *
          (1 + torch::tanh(0.7978845608028654 * (z + 0.044715 * z.pow(3))));
      out.push_back(Map("out", h * gelu));
    }
    return out.empty() ? torch::zeros_like(x) : torch::stack(out, 1);
  }

  // With gates that are not divided by a running maximum: sums of exponentials
  // that float64 holds.
  torch::Tensor Mlstm(const ModelConfig& layer, const torch::Tensor& x) const {
    std::vector<torch::Tensor> out;
    const int64_t heads = layer.n_heads;
    const double cap = KeyOf<double>(layer, "gate_softcap");
    const auto gate = [&](const char* name, const torch::Tensor& row) {
      const torch::Tensor y = Map(name, row);  // [B, H]
      return cap == 0 ? y : cap * torch::tanh(y / cap);
    };
    torch::Tensor c = torch::zeros(
        {x.size(0), heads, layer.d_key, layer.d_value}, x.options());
    torch::Tensor n =
        torch::zeros({x.size(0), heads, layer.d_key}, x.options());
    torch::Tensor m = torch::zeros({x.size(0), heads}, x.options());
    for (int64_t t = 0; t < x.size(1); ++t) {
      const torch::Tensor row = x.select(1, t);
      const auto split = [&](const char* name, int64_t width) {
        return Map(name, row).view({-1, heads, width});
      };
      const torch::Tensor q =
          split("query", layer.d_key) / std::sqrt(1.0 * layer.d_key);
      const torch::Tensor k = split("key", layer.d_key);
      const torch::Tensor v = split("value", layer.d_value);
      const torch::Tensor i = gate("input", row);
      const torch::Tensor f = 1 / (1 + torch::exp(-gate("forget", row)));
      m = torch::maximum(torch::log(f) + m, i);
      const torch::Tensor written = torch::exp(i).unsqueeze(-1) * k;
      c = f.unsqueeze(-1).unsqueeze(-1) * c +
          written.unsqueeze(-1) * v.unsqueeze(-2);
      n = f.unsqueeze(-1) * n + written;
      const torch::Tensor read = (c * q.unsqueeze(-1)).sum(2);
      const torch::Tensor sum =
          torch::maximum((n * q).sum(-1).abs(), torch::ones_like(m)) +
          1e-6 * torch::exp(m);
      const torch::Tensor h = read / sum.unsqueeze(-1);
      const torch::Tensor centred = h - h.mean(-1, true);
      const torch::Tensor root =
          torch::sqrt(centred.pow(2).mean(-1, true) + layer.norm_eps);
      const torch::Tensor z = 1 / (1 + torch::exp(-Map("gate", row)));
      out.push_back(
          Map("out", (centred / root).flatten(1) * At("norm.weight") * z));
    }
    return out.empty() ? torch::zeros_like(x) : torch::stack(out, 1);
  }

 private:
  const torch::Tensor& At(const std::string& name) const {
    return weights_.at(prefix_ + name);
  }
  torch::Tensor Map(const std::string& name, const torch::Tensor& row) const {
    const torch::Tensor y =
        torch::matmul(row, At(name + "_projection.weight").t());
    const auto bias = weights_.find(prefix_ + name + "_projection.bias");
    return bias == weights_.end() ? y : y + bias->second;
  }
  // The convolution at the last of the rows.
  torch::Tensor Filtered(const std::vector<torch::Tensor>& rows) const {
    const torch::Tensor weight = At("convolution.weight");
    torch::Tensor sum = torch::zeros_like(rows.back());
    const auto bias = weights_.find(prefix_ + "convolution.bias");
    if (bias != weights_.end()) sum = sum + bias->second;
    for (size_t back = 0; back < rows.size(); ++back) {
      const int64_t tap = weight.size(1) - 1 - static_cast<int64_t>(back);
      if (tap < 0) break;
      sum = sum + rows[rows.size() - 1 - back] * weight.select(1, tap);
    }
    return sum;
  }
  // sigma(W u + b), block by block.
  torch::Tensor Gate(const ModelConfig& layer, const std::string& name,
                     const torch::Tensor& u) const {
    std::vector<torch::Tensor> blocks;
    for (int64_t i = 0; i < layer.n_heads; ++i) {
      const torch::Tensor own =
          u.slice(1, i * layer.d_value, (i + 1) * layer.d_value);
      blocks.push_back(torch::matmul(own, At(name + ".weight")[i].t()));
    }
    const torch::Tensor y = torch::cat(blocks, 1) + At(name + ".bias");
    return 1 / (1 + torch::exp(-y));
  }

  const std::map<std::string, torch::Tensor>& weights_;
  const std::string prefix_;
};

}  // namespace tarn::plain
