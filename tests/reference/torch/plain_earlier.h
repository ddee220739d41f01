// The oracle of the earlier models: recurrences and convolutions as loops over
// tokens and taps.
#pragma once

#include "reference/torch/plain_model.h"

namespace tarn::plain {

// One direction of a layer: x [1, T, D] -> [1, T, hidden]. suffix: "_l0",
// "_l0_reverse", ...
inline torch::Tensor Recurrence(const ModelConfig& config,
                                const Weights& weights,
                                const std::string& suffix,
                                const torch::Tensor& x) {
  const auto weight = [&](const char* name) {
    return weights.at("rnn." + (name + suffix));
  };
  const bool reverse = suffix.find("reverse") != std::string::npos;
  const int64_t seq_len = x.size(1), hidden = weight("weight_hh").size(1);
  torch::Tensor h = torch::zeros({1, hidden}, x.options());
  torch::Tensor c = h;
  std::vector<torch::Tensor> rows(static_cast<size_t>(seq_len));
  for (int64_t i = 0; i < seq_len; ++i) {
    const int64_t t = reverse ? seq_len - 1 - i : i;
    const torch::Tensor u =
        torch::matmul(x.select(1, t), weight("weight_ih").t()) +
        weight("bias_ih") + torch::matmul(h, weight("weight_hh").t()) +
        weight("bias_hh");
    if (config.arch == Arch::kRnn) {
      h = torch::tanh(u);
    } else {  // rows of the gates: input, forget, cell, output
      const auto gate = [&](int64_t n) {
        return u.slice(1, n * hidden, (n + 1) * hidden);
      };
      c = torch::sigmoid(gate(1)) * c +
          torch::sigmoid(gate(0)) * torch::tanh(gate(2));
      h = torch::sigmoid(gate(3)) * torch::tanh(c);
    }
    rows[static_cast<size_t>(t)] = h;
  }
  return torch::stack(rows, 1);
}

// x [1, T, D] -> the same: sum over taps k of W[:, :, k] x_{t + k - left}.
inline torch::Tensor Convolution(const ModelConfig& config,
                                 const Weights& weights,
                                 const std::string& name,
                                 const torch::Tensor& x) {
  const int64_t taps = config.kernel_size, seq_len = x.size(1);
  const int64_t left = config.task == Task::kLm ? taps - 1 : (taps - 1) / 2;
  std::vector<torch::Tensor> rows;
  for (int64_t t = 0; t < seq_len; ++t) {
    torch::Tensor sum = weights.at(name + ".conv.bias").unsqueeze(0);
    for (int64_t k = 0; k < taps; ++k) {
      const int64_t from = t + k - left;
      if (from < 0 || from >= seq_len) continue;
      sum = sum +
            torch::matmul(x.select(1, from),
                          weights.at(name + ".conv.weight").select(2, k).t());
    }
    rows.push_back(sum);
  }
  const torch::Tensor u = torch::stack(rows, 1);
  const torch::Tensor act =
      config.activation == Activation::kRelu
          ? torch::where(u > 0, u, torch::zeros_like(u))
          : u * 0.5 * (1.0 + torch::erf(u / std::sqrt(2.0)));
  return Normed(config, weights, name + ".norm", x + act);
}

/// tokens [1, T] (frames [1, T, input_dim] of task ctc), all of them valid ->
/// logits [1, T, outputs] or [1, n_classes].
inline torch::Tensor EarlierLogits(const ModelConfig& config,
                                   const Weights& weights,
                                   const torch::Tensor& tokens) {
  torch::Tensor x = config.ReadsFrames()
                        ? tokens
                        : weights.at("value_embedding.weight").index({tokens});
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string number = std::to_string(i);
    if (config.arch == Arch::kCnn) {
      x = Convolution(config, weights, "layers." + number, x);
      continue;
    }
    const torch::Tensor forward = Recurrence(config, weights, "_l" + number, x);
    x = config.bidirectional
            ? torch::cat({forward, Recurrence(config, weights,
                                              "_l" + number + "_reverse", x)},
                         -1)
            : forward;
  }
  if (config.task == Task::kClassify) x = x.mean(1);
  return Head(config, weights, "value_embedding", x);
}

}  // namespace tarn::plain
