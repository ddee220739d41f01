#include "torch_nn/mixers/gated/weights.h"

#include <algorithm>
#include <cmath>

namespace tarn::nn {
namespace {

// Rates of Mamba-2 and of what followed it begin between these.
constexpr double kLeastRate = 1, kLargestRate = 16;

// RetNet: log(1 - 2^(-5 - h)) (Sun et al. 2023, eq. (8)). Lightning: slopes of
// ALiBi, flatter from layer to layer up to none in the last (MiniMax-01, arXiv
// 2501.08313): -2^(-8 (h + 1) / H) (1 - l / (L - 1 + 1e-5) + 1e-5).
torch::Tensor LogDecay(const GatedForm& form, int64_t heads,
                       const Depth& depth) {
  std::vector<float> log_decay;
  const double l = static_cast<double>(depth.layer);
  const double last = static_cast<double>(depth.layers - 1);
  for (int64_t h = 0; h < heads; ++h) {
    const double place = static_cast<double>(h);
    const double slope =
        std::exp2(-8.0 * (place + 1) / static_cast<double>(heads)) *
        (1 - l / (last + 1e-5) + 1e-5);
    log_decay.push_back(static_cast<float>(
        form.rotary ? std::log1p(-std::exp2(-5 - place)) : -slope));
  }
  return torch::tensor(log_decay);
}

// Bounds that are not learned stay where equal logits of the layers put them.
torch::Tensor LowerBound(int64_t gates, const Depth& depth) {
  return torch::full({gates}, static_cast<double>(depth.layer) /
                                  static_cast<double>(depth.layers));
}

}  // namespace

GatedWeights::GatedWeights(torch::nn::Module& owner, const GatedForm& form,
                           const GatedSizes& s, const Depth& depth) {
  const auto linear = [&](const char* name, int64_t rows, int64_t columns,
                          bool bias = false) {
    return owner.register_module(
        name,
        torch::nn::Linear(torch::nn::LinearOptions(columns, rows).bias(bias)));
  };
  const bool gated = form.output_gate != OutputGate::kNone;
  query = linear("query_projection", s.keys, s.d_model, s.in_bias);
  if (!form.bounded())
    key = linear("key_projection", s.keys, s.d_model, s.in_bias);
  value = linear("value_projection", s.values, s.d_model, s.in_bias);
  const auto feature = [&](bool has, const char* name) {
    return has ? linear(name, s.d_key, s.d_key, s.phi.has_bias())
               : torch::nn::Linear{nullptr};
  };
  query_map = feature(s.phi.has_matrix(), "query_map_projection");
  query_factor = feature(s.phi.has_factor(), "query_factor_projection");
  key_map = feature(s.phi.has_matrix(), "key_map_projection");
  key_factor = feature(s.phi.has_factor(), "key_factor_projection");
  if (s.phi.map == QkMap::kHedgehog) {  // begins as the identity
    for (const torch::nn::Linear& map : {query_map, key_map}) {
      torch::nn::init::eye_(map->weight);
      torch::nn::init::zeros_(map->bias);
    }
  }
  if (form.low_rank_output_gate) {
    gate = linear("gate_down_projection", s.rank, s.d_model, s.in_bias);
    gate_up =
        linear("gate_up_projection", s.values, s.rank, form.output_gate_bias);
  } else if (gated) {
    gate = linear("gate_projection", s.values, s.d_model, s.in_bias);
  }
  if (form.low_rank()) {
    const bool bias = form.gate == DecayGate::kLogSigmoid;
    decay = linear("decay_down_projection", s.rank, s.d_model, s.in_bias);
    decay_up = linear("decay_up_projection", s.gates, s.rank, bias);
    if (bias) torch::nn::init::zeros_(decay_up->bias);
  } else if (form.projected()) {
    decay = linear("decay_projection", s.gates, s.d_model, s.in_bias);
  }
  if (form.delta)
    beta = linear("beta_projection", s.heads, s.d_model, s.in_bias);
  if (form.constant()) {
    log_decay =
        owner.register_buffer("log_decay", LogDecay(form, s.heads, depth));
  }
  if (s.learns_bounds && !s.reads_bounds) {
    bound_logits = owner.register_parameter("bound_logits",
                                            torch::zeros({s.depth, s.gates}));
  } else if (form.bounded() && !s.learns_bounds) {
    lower_bound =
        owner.register_buffer("lower_bound", LowerBound(s.gates, depth));
  }
  if (form.softplus()) {
    A_log = owner.register_parameter(
        "A_log",
        torch::empty({s.heads}).uniform_(kLeastRate, kLargestRate).log());
    dt_bias = owner.register_parameter("dt_bias", DrawStepBias(s.gates));
  }
  if (form.skip) D = owner.register_parameter("D", torch::ones({s.heads}));
  if (s.width > 0) {
    convolution =
        ConvolutionFilters(owner, s.channels, s.width, form.convolution_bias);
  }
  if (form.norm) {
    const auto normed = owner.register_module(
        "norm", std::make_shared<torch::nn::Module>("norm"));
    norm = normed->register_parameter(
        "weight", torch::ones({s.shared_norm ? s.norm_width : s.values}));
  }
  out = linear("out_projection", s.d_model, s.values, s.out_bias);
}

std::vector<torch::nn::Linear> GatedWeights::First() const {
  std::vector<torch::nn::Linear> maps;
  for (const torch::nn::Linear& map : {query, key, value, gate, decay, beta}) {
    if (!map.is_empty()) maps.push_back(map);
  }
  return maps;
}

std::vector<torch::Tensor> GatedWeights::FirstMaps() const {
  std::vector<torch::Tensor> maps;
  for (const torch::nn::Linear& map : First()) maps.push_back(map->weight);
  return maps;
}

std::vector<torch::Tensor> GatedWeights::FirstBiases() const {
  std::vector<torch::Tensor> biases;
  for (const torch::nn::Linear& map : First()) {
    if (map->bias.defined()) biases.push_back(map->bias);
  }
  return biases;
}

std::vector<int64_t> GatedWeights::FirstWidths() const {
  std::vector<int64_t> widths;
  for (const torch::nn::Linear& map : First()) {
    widths.push_back(map->weight.size(0));
  }
  return widths;
}

}  // namespace tarn::nn
