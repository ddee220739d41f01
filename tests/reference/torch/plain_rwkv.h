// RWKV-6 and RWKV-7 again, token by token from their equations, for
// plain_model.h; and the one name for all mixers with a decaying state.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "reference/torch/plain_convolution.h"
#include "reference/torch/plain_gated.h"
#include "reference/torch/plain_mamba.h"

namespace tarn::plain {

inline bool IsRwkv(const ModelConfig& layer) {
  const std::string name = Name(layer.attention);
  return name == "rwkv6" || name == "rwkv7";
}

class RwkvLoop {
 public:
  RwkvLoop(const ModelConfig& layer,
           const std::map<std::string, torch::Tensor>& weights,
           const std::string& prefix)
      : c_(layer),
        seven_(std::string(Name(layer.attention)) == "rwkv7"),
        weights_(weights),
        prefix_(prefix) {}

  // x [B, T, D] -> [B, T, D]. first [B, T, H K]: the values of the first layer,
  // which sets them.
  torch::Tensor Mix(const torch::Tensor& x, torch::Tensor* first) {
    torch::Tensor state =
        torch::zeros({x.size(0), c_.n_heads, c_.d_key, c_.d_key}, x.options());
    torch::Tensor before = torch::zeros({x.size(0), x.size(2)}, x.options());
    std::vector<torch::Tensor> out, values;
    const bool later = weights_.contains(prefix_ + "value_up_projection.bias");
    for (int64_t t = 0; t < x.size(1); ++t) {
      const torch::Tensor row = x.select(1, t);
      const std::vector<torch::Tensor> y = Mixtures(row, before);
      torch::Tensor v = Map("value", y[3]);
      values.push_back(v);
      if (later) {
        const torch::Tensor share =
            Logistic(Map("value_up", Map("value_down", y[3])));
        v = (1 - share) * v + share * first->select(1, t);
      }
      out.push_back(Token(y, v, state));
      before = row;
    }
    if (!later && KeyOf<bool>(c_, "value_residual") && !values.empty()) {
      *first = torch::stack(values, 1);
    }
    return out.empty() ? torch::zeros_like(x) : torch::stack(out, 1);
  }

 private:
  torch::Tensor At(const std::string& name) const {
    return weights_.at(prefix_ + name);
  }
  torch::Tensor Map(const std::string& name, const torch::Tensor& x) const {
    torch::Tensor y = torch::matmul(x, At(name + "_projection.weight").t());
    const auto bias = weights_.find(prefix_ + name + "_projection.bias");
    return bias == weights_.end() ? y : y + bias->second;
  }
  torch::Tensor Heads(const torch::Tensor& x) const {
    return x.view({x.size(0), c_.n_heads, c_.d_key});
  }

  // The row mixed with the row before it, once each for queries, decays, keys,
  // values, gates and, in RWKV-7, rates.
  std::vector<torch::Tensor> Mixtures(const torch::Tensor& row,
                                      const torch::Tensor& before) const {
    const torch::Tensor step = before - row;
    std::vector<torch::Tensor> mixtures;
    for (int64_t n = 0; n < At("token_shift").size(0); ++n) {
      torch::Tensor share = At("token_shift")[n];
      if (!seven_) {
        const torch::Tensor first =
            torch::tanh(Map("shift_down", row + step * At("shift_base")));
        const int64_t rank = first.size(1) / 5, d = row.size(1);
        share = share + torch::matmul(first.slice(1, n * rank, (n + 1) * rank),
                                      At("shift_up_projection.weight")
                                          .slice(0, n * d, (n + 1) * d)
                                          .t());
      }
      mixtures.push_back(row + step * share);
    }
    return mixtures;
  }

  torch::Tensor Token(const std::vector<torch::Tensor>& y,
                      const torch::Tensor& values, torch::Tensor& state) const {
    const torch::Tensor q = Heads(Map("query", y[0])), v = Heads(values);
    torch::Tensor k = Map("key", y[2]);
    const torch::Tensor w =
        Heads(Map("decay_up", torch::tanh(Map("decay_down", y[1]))));
    torch::Tensor o, gate;
    if (seven_) {
      const torch::Tensor a = Logistic(Map("rate_up", Map("rate_down", y[5])));
      gate = Map("gate_up", Logistic(Map("gate_down", y[4])));
      torch::Tensor c = Heads(k * At("key_scale"));
      c = c /
          torch::sqrt((c * c).sum(-1, true) + KeyOf<double>(c_, "unit_eps"));
      k = k * (1 + (a - 1) * At("key_rate"));
      const torch::Tensor read = -(state * c.unsqueeze(-1)).sum(2);
      state = torch::exp(-std::exp(-0.5) * Logistic(w)).unsqueeze(-1) * state +
              (c * Heads(a)).unsqueeze(-1) * read.unsqueeze(2) +
              Heads(k).unsqueeze(-1) * v.unsqueeze(2);
      o = (state * q.unsqueeze(-1)).sum(2);
    } else {
      const torch::Tensor z = Map("gate", y[4]);
      gate = z * Logistic(z);
      const torch::Tensor added = Heads(k).unsqueeze(-1) * v.unsqueeze(2);
      o = ((state + At("bonus").unsqueeze(-1) * added) * q.unsqueeze(-1))
              .sum(2);
      state = torch::exp(-torch::exp(w)).unsqueeze(-1) * state + added;
    }
    const torch::Tensor centred = o - o.mean(-1, true);
    const double given = KeyOf<double>(c_, "output_norm_eps");
    const double eps =
        given > 0 ? given : c_.norm_eps * static_cast<double>(c_.d_key);
    o = centred / torch::sqrt(centred.pow(2).mean(-1, true) + eps);
    o = o * Heads(At("norm.weight").unsqueeze(0)) +
        Heads(At("norm.bias").unsqueeze(0));
    if (seven_) o = o + (q * Heads(k) * At("bonus")).sum(-1, true) * v;
    return Map("out", o.flatten(1) * gate);
  }

  const ModelConfig& c_;
  const bool seven_;
  const std::map<std::string, torch::Tensor>& weights_;
  const std::string prefix_;
};

inline bool IsRecurrent(const ModelConfig& layer) {
  return IsGated(layer) || IsRwkv(layer) || IsMamba(layer) ||
         IsShortConv(layer) || IsLru(layer) || IsMlstm(layer);
}

// prefix: of the layer's tensors, "layers.0.attention." or "".
inline torch::Tensor RecurrentMix(
    const ModelConfig& layer,
    const std::map<std::string, torch::Tensor>& weights,
    const std::string& prefix, const torch::Tensor& x,
    torch::Tensor* first_values = nullptr) {
  if (IsRwkv(layer))
    return RwkvLoop(layer, weights, prefix).Mix(x, first_values);
  if (IsMamba(layer)) return MambaMix(layer, weights, prefix, x);
  if (IsShortConv(layer)) return ConvolutionLoop(weights, prefix).ShortConv(x);
  if (IsLru(layer)) return ConvolutionLoop(weights, prefix).Lru(layer, x);
  if (IsMlstm(layer)) return ConvolutionLoop(weights, prefix).Mlstm(layer, x);
  return GatedMix(layer, weights, prefix, x);
}

}  // namespace tarn::plain
