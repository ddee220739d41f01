// torch.ops.tarn.channel_mix: RWKV's feed-forward part (Peng et al. 2025, arXiv
// 2503.14456), composed of operators, each with its kernel and gradient.
#include <torch/library.h>

#include "torch_ops/layers/call.h"
#include "torch_ops/rows/row_ops.h"

namespace tarn::ops {
namespace channel_mix {
namespace {

at::Tensor Forward(const at::Tensor& x, const OptionalTensor& before,
                   const at::Tensor& shift, const at::Tensor& weight1,
                   const at::Tensor& weight2, double dropout,
                   const OptionalTensor& seed) {
  return ChannelMix({x, before, shift, weight1, weight2, {dropout, seed}});
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "channel_mix(Tensor x, Tensor? before, Tensor shift, Tensor weight1, "
      "Tensor weight2, float dropout=0.0, Tensor? seed=None) -> Tensor",
      &Forward);
}

}  // namespace
}  // namespace channel_mix

at::Tensor ChannelMix(const ChannelMixArguments& a) {
  const at::Tensor mixed = TokenShift(a.x, a.before, a.shift);
  at::Tensor hidden = ApplyEntryForm(Affine(mixed, a.weight1), "square_relu");
  if (a.dropout.probability > 0) {
    ResidualNormArguments dropped;
    dropped.x = hidden;
    dropped.dropout = a.dropout;
    hidden = ResidualNorm(dropped).s;
  }
  return Affine(hidden, a.weight2);
}

}  // namespace tarn::ops
