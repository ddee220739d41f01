#include "torch_nn/mixers/rwkv/weights.h"

#include <algorithm>
#include <cmath>

namespace tarn::nn {
namespace {

// How far a layer is on its way through the stack: 0 to 1, and 1 to almost 0.
double Rising(const Depth& depth) {
  return static_cast<double>(depth.layer) /
         static_cast<double>(std::max<int64_t>(depth.layers - 1, 1));
}
double Falling(const Depth& depth) {
  return 1.0 -
         static_cast<double>(depth.layer) / static_cast<double>(depth.layers);
}

// n / (count - 1), a channel each.
torch::Tensor Ramp(int64_t count) {
  return torch::arange(count).to(torch::kFloat32) /
         static_cast<double>(std::max<int64_t>(count - 1, 1));
}

// The share of the earlier row: 1 for the first channels, 0 for the last ones;
// later layers look back less. Exponents by input, as the authors' code has
// them for query, decay, key, value, gate and rate.
torch::Tensor Shifts(const RwkvSizes& s, const Depth& depth) {
  constexpr double kSeven[] = {0.2, 0.9, 0.7, 0.7, 0.2, 0.9};
  constexpr double kSix[] = {0.5, 1.0, 1.0, 1.0, 0.5};
  const torch::Tensor channel = torch::arange(s.d_model).to(torch::kFloat32) /
                                static_cast<double>(s.d_model);
  std::vector<torch::Tensor> rows;
  for (int64_t n = 0; n < s.inputs; ++n) {
    const double power = (s.seven ? kSeven : kSix)[n] * Falling(depth);
    rows.push_back(1 - channel.pow(power));
  }
  return torch::stack(rows);
}

// Inputs of the decay: slow channels first, fast ones last.
torch::Tensor DecayBias(const RwkvSizes& s, const Depth& depth) {
  if (s.seven) {
    return -6.5 + 5 * Ramp(s.width).pow(0.85 + std::sqrt(Rising(depth)));
  }
  return -6 + 5 * Ramp(s.width).pow(0.7 + 1.3 * Rising(depth));
}

// Inputs of the share of the first layer's values: less of it in later
// channels.
torch::Tensor ValueBias(const RwkvSizes& s) {
  return 0.73 - 0.4 * (Ramp(s.width) - 0.5);
}

// RWKV-6 begins with a ramp and a small zigzag of period 3.
torch::Tensor Bonus(const RwkvSizes& s, const Depth& depth) {
  if (s.seven) return torch::full({s.heads, s.d_key}, -0.04);
  const torch::Tensor zigzag =
      0.1 * ((torch::arange(s.width) + 1).remainder(3) - 1);
  return (Rising(depth) * (1 - Ramp(s.width)) + zigzag)
      .view({s.heads, s.d_key});
}

}  // namespace

RwkvWeights::RwkvWeights(torch::nn::Module& owner, const RwkvSizes& s,
                         const Depth& depth) {
  const int64_t d = s.d_model, w = s.width;
  const auto linear = [&](const char* name, int64_t rows, int64_t columns,
                          bool bias = false) {
    return owner.register_module(
        name,
        torch::nn::Linear(torch::nn::LinearOptions(columns, rows).bias(bias)));
  };
  const auto parameter = [&](const char* name, const torch::Tensor& value) {
    return owner.register_parameter(name, value.to(torch::kFloat32));
  };
  // The second halves of low rank begin small: their biases decide at first.
  const auto up = [&](const char* name, int64_t rank,
                      const torch::Tensor& bias) {
    torch::nn::Linear map = linear(name, w, rank, bias.defined());
    torch::NoGradGuard no_grad;
    if (!bias.defined()) return map;
    map->weight.mul_(0.1);
    map->bias.copy_(bias);
    return map;
  };
  token_shift = parameter("token_shift", Shifts(s, depth));
  if (!s.seven) {
    shift_base = parameter(
        "shift_base",
        1 - (torch::arange(d).to(torch::kFloat32) / static_cast<double>(d))
                .pow(Falling(depth)));
    shift_down = linear("shift_down_projection", s.inputs * s.shift_rank, d);
    const auto inner = owner.register_module(
        "shift_up_projection", std::make_shared<torch::nn::Module>("up"));
    shift_up = inner->register_parameter(
        "weight",
        torch::empty({s.inputs * d, s.shift_rank}).uniform_(-1e-2, 1e-2));
  }
  query = linear("query_projection", w, d);
  key = linear("key_projection", w, d);
  value = linear("value_projection", w, d);
  decay_down = linear("decay_down_projection", s.rank, d);
  decay_up = up("decay_up_projection", s.rank, DecayBias(s, depth));
  if (s.seven) {
    rate_down = linear("rate_down_projection", s.rate_rank, d);
    rate_up = up("rate_up_projection", s.rate_rank, torch::zeros({w}));
    if (s.reads_values) {
      value_down = linear("value_down_projection", s.value_rank, d);
      value_up = up("value_up_projection", s.value_rank, ValueBias(s));
    }
    gate_down = linear("gate_down_projection", s.gate_rank, d);
    gate_up = up("gate_up_projection", s.gate_rank, {});
    key_scale = parameter("key_scale", torch::full({w}, 0.71));
    key_rate = parameter("key_rate", torch::full({w}, 1.02));
  } else {
    gate = linear("gate_projection", w, d);
  }
  bonus = parameter("bonus", Bonus(s, depth));
  const auto norm = owner.register_module(
      "norm", std::make_shared<torch::nn::Module>("norm"));
  norm_weight = norm->register_parameter("weight", torch::ones({w}));
  norm_bias = norm->register_parameter("bias", torch::zeros({w}));
  out = linear("out_projection", d, w);
}

}  // namespace tarn::nn
