#include "torch_nn/mixers/gated/rows.h"

#include "torch_ops/common/tensors.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {

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
