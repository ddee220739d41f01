#include "torch_nn/mixers/gated/rows.h"

#include "torch_ops/common/tensors.h"
#include "torch_ops/feature_maps/feature_maps.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {
namespace {

torch::Tensor Apply(const torch::nn::Linear& map, const torch::Tensor& x) {
  return ops::Affine(x, map->weight, ops::NoneOr(map->bias));
}

torch::Tensor Elementwise(FeatureMap map, const torch::Tensor& x) {
  ops::FeatureMapOptions options;
  options.map = map;
  return ops::Features(options, x);
}

torch::Tensor Dpfp(const torch::Tensor& x) {
  const torch::Tensor halves = torch::cat({x.relu(), (-x).relu()}, -1);
  std::vector<torch::Tensor> parts;
  for (int64_t j = 1; j <= kDpfpRolls; ++j) {
    parts.push_back(halves * halves.roll(j, -1));
  }
  return torch::cat(parts, -1);
}

torch::Tensor Mapped(QkMap map, const torch::nn::Linear& matrix,
                     const torch::nn::Linear& factor, const torch::Tensor& x) {
  switch (map) {
    case QkMap::kElu1:
      return Elementwise(FeatureMap::kElu1, x);
    case QkMap::kIdentity:
      break;
    case QkMap::kRelu:
      return Elementwise(FeatureMap::kRelu, x);
    case QkMap::kHadamard:
      return Apply(matrix, x) * Apply(factor, x);
    case QkMap::kT2r:
      return Apply(matrix, x).relu();
    case QkMap::kHedgehog: {
      const torch::Tensor y = 2 * Apply(matrix, x);
      return torch::cat({y, -y}, -1).softmax(-1);
    }
    case QkMap::kDpfp:
      return Dpfp(x);
  }
  return x;
}

}  // namespace

torch::Tensor HeadFeatures(const QkFeatures& phi, const torch::nn::Linear& map,
                           const torch::nn::Linear& factor, bool unit,
                           const torch::Tensor& x) {
  const torch::Tensor features = Mapped(phi.map, map, factor, x);
  if (!unit) return features;
  return features / (features.sum(-1, true) + kUnitSumEps);
}

torch::Tensor CountedValues(const QkFeatures& phi,
                            const torch::Tensor& values) {
  if (!phi.divided) return values;
  std::vector<int64_t> one = values.sizes().vec();
  one.back() = 1;
  return torch::cat({values, torch::ones(one, values.options())}, -1);
}

torch::Tensor DividedSums(const QkFeatures& phi, const torch::Tensor& sums) {
  if (!phi.divided) return sums;
  const int64_t last = sums.size(-1) - 1;
  return sums.slice(-1, 0, last) / (sums.slice(-1, last) + kDivisorEps);
}

ops::DecayGateResult Gates(const GatedForm& form, const GatedSizes& s,
                           const GatedWeights& weights, const torch::Tensor& x,
                           const torch::Tensor& bounds) {
  ops::DecayGateArguments gate;
  gate.x = x;
  switch (form.gate) {
    case DecayGate::kHead:
    case DecayGate::kChannel:
      gate.form = "softplus";
      gate.A_log = weights.A_log;
      gate.bias = weights.dt_bias;
      gate.second = form.skip;
      gate.least = s.least_step;
      if (s.most_step > 0) gate.most = s.most_step;
      break;
    case DecayGate::kLogSigmoid:
      gate.form = "log_sigmoid";
      gate.scale = 1.0 / kLogSigmoidDivisor;
      break;
    case DecayGate::kBounded:
      gate.form = "bounded";
      gate.bias = bounds;
      gate.second = true;
      break;
    case DecayGate::kConstant:
      return {WideRows(weights.log_decay), {}};
    case DecayGate::kNone:
      return {};
  }
  ops::DecayGateResult made = ops::DecayGate(gate);
  if (form.channels()) made.gates = AsHeads(made.gates, s.heads);
  if (form.bounded()) made.second = AsHeads(made.second, s.key_heads);
  return made;
}

torch::Tensor NormOutput(const GatedForm& form, const GatedSizes& s,
                         const torch::Tensor& weight,
                         const torch::Tensor& heads,
                         const torch::Tensor& gate) {
  if (!form.norm) return heads.flatten(2) * torch::silu(gate);
  const auto groups = [&](const torch::Tensor& x) {
    return x.unflatten(2, {s.norm_groups, s.norm_width});
  };
  ops::GatedNormCall call;
  call.x = form.span == NormSpan::kHead ? heads : groups(heads.flatten(2));
  call.weight =
      s.shared_norm ? weight : weight.view({s.norm_groups, s.norm_width});
  if (gate.defined()) call.gate = groups(gate);
  call.eps = s.norm_eps;
  call.activation =
      form.output_gate == OutputGate::kSigmoid ? "sigmoid" : "silu";
  call.gate_first = form.gate_first;
  return ops::GatedNorm(call).flatten(2);
}

ops::GatedResult Recur(const GatedForm& form, const GatedSizes& s,
                       const GatedInputs& in, const torch::Tensor& lengths,
                       const torch::Tensor& initial, bool return_state) {
  ops::GatedOptions options;
  options.gates = ops::NoneOr(in.gates);
  options.lengths = ops::NoneOr(lengths);
  options.initial_state = ops::NoneOr(initial);
  options.scale = s.scale;
  options.return_state = return_state;
  if (form.delta) {
    return ops::DeltaAttention(in.queries, in.keys, in.values, in.betas,
                               options);
  }
  return ops::DecayAttention(in.queries, in.keys, in.values, options);
}

}  // namespace tarn::nn
