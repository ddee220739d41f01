// The layers of LFM2 (arXiv 2511.23404) and Griffin (arXiv 2402.19427, eq.
// (1)-(4)) again, token by token from their equations, for plain_model.h.
#pragma once

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
