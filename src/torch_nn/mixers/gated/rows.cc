#include "torch_nn/mixers/gated/rows.h"

#include <cmath>

#include "torch_ops/common/tensors.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {
torch::ScalarType WideType(const torch::Tensor& x) {
  return x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

torch::Tensor WideRows(const torch::Tensor& x) { return x.to(WideType(x)); }

torch::Tensor AsHeads(const torch::Tensor& x, int64_t heads) {
  return x.unflatten(2, {heads, x.size(2) / heads});
}

// The RMS norm divides by the root of a mean where this divides by that of a
// sum: with sqrt(1 / K) for its weight and eps / K for its eps they are one,
// and the norm has a kernel. A weight of 16 bits would be too coarse.
torch::Tensor Unit(const torch::Tensor& heads) {
  const double width = static_cast<double>(heads.size(-1));
  if (heads.scalar_type() != WideType(heads)) {
    const torch::Tensor wide = WideRows(heads);
    return (wide * torch::rsqrt(wide.pow(2).sum(-1, true) + kUnitEps))
        .to(heads.scalar_type());
  }
  ops::ResidualNormArguments norm;
  norm.x = heads;
  norm.gamma =
      torch::full({heads.size(-1)}, 1 / std::sqrt(width), heads.options());
  norm.eps = static_cast<double>(kUnitEps) / width;
  norm.kind = NormKind::kRms;
  return ops::ResidualNorm(norm).y;
}

torch::Tensor Steps(const GatedWeights& weights, const torch::Tensor& x) {
  return torch::softplus(WideRows(x) + WideRows(weights.dt_bias));
}

torch::Tensor Gates(const GatedForm& form, const GatedSizes& s,
                    const GatedWeights& weights, const torch::Tensor& x,
                    const torch::Tensor& steps) {
  const auto heads = [&](const torch::Tensor& gates) {
    return form.channels() ? AsHeads(gates, s.heads) : gates;
  };
  switch (form.gate) {
    case DecayGate::kHead:
    case DecayGate::kChannel: {
      const torch::Tensor rates = -WideRows(weights.A_log).exp();  // [H]
      return heads(steps) * (form.channels() ? rates.unsqueeze(-1) : rates);
    }
    case DecayGate::kLogSigmoid:
      return heads(torch::log_sigmoid(WideRows(x))) / kLogSigmoidDivisor;
    case DecayGate::kBounded: {
      // log(l + (1 - l) sigma(x)) from logarithms, as sigma(x) may underflow
      // where l = 0.
      const torch::Tensor bound = WideRows(weights.lower_bound);
      return heads(torch::logaddexp(
          bound.log(), torch::log1p(-bound) + torch::log_sigmoid(WideRows(x))));
    }
    case DecayGate::kConstant:
      return WideRows(weights.log_decay);
    case DecayGate::kNone:
      break;
  }
  return {};
}

torch::Tensor BoundedKeys(const GatedSizes& s, const GatedWeights& weights,
                          const torch::Tensor& x) {
  const torch::Tensor keys =
      (1 - WideRows(weights.lower_bound)) * torch::sigmoid(-WideRows(x));
  return AsHeads(keys.to(x.scalar_type()), s.key_heads);
}

torch::Tensor NormOutput(const GatedForm& form, const GatedSizes& s,
                         const torch::Tensor& weight, double eps,
                         const torch::Tensor& heads,
                         const torch::Tensor& gate) {
  const auto groups = [&](const torch::Tensor& x) {
    return x.unflatten(2, {s.norm_groups, s.norm_width});
  };
  ops::GatedNormCall call;
  call.x = form.span == NormSpan::kHead ? heads : groups(heads.flatten(2));
  call.weight =
      s.shared_norm ? weight : weight.view({s.norm_groups, s.norm_width});
  if (gate.defined()) call.gate = groups(gate);
  call.eps = eps;
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
