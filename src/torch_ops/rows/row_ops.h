// The formulas around recurrences, as C++ modules call them: what
// torch.ops.tarn holds under the same names. kernels/<name>/<name>.h has each
// formula with its source and its gradient.
//
// float32, bfloat16 and float16 by the kernels on the CPU; float64, other
// devices, torch.func and gradients of gradients by the composed form, which
// torch's operators define. Arithmetic is float32 (float64 for float64) with
// one rounding. Differentiable to any order. Errors arrive as torch's:
// c10::TypeError for dtypes, c10::ValueError for the rest, before any work.
// Thread-safe; the same bits for any number of threads. `...`: any axes.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <string>
#include <vector>

#include "torch_ops/layers/layers.h"

namespace tarn::ops {

/// The logarithms of decay factors from projected numbers x [..., N].
struct DecayGateArguments {
  at::Tensor x;
  std::string form = "softplus";  // the names of kernels/decay_gate
  // [H], H a divisor of N: the logarithms of the rates of N / H entries each;
  // for "softplus" and "sigmoid", absent means zeros.
  OptionalTensor A_log;
  OptionalTensor bias;  // [N]; "bounded" needs it, absent means zeros
  double scale = 1.0;   // of "log_sigmoid" and "sigmoid"
  bool second = false;  // asks for the second result
  // Limits of the steps of "softplus", 0 <= least <= most.
  double least = 0.0, most = std::numeric_limits<double>::infinity();
};
struct DecayGateResult {
  at::Tensor gates;  // as x, float32 (float64 for float64)
  // As x, or [0] unless asked for: the steps of "softplus", in the dtype of
  // gates; the keys of "bounded", in that of x.
  at::Tensor second;
};
DecayGateResult DecayGate(const DecayGateArguments& arguments);

/// The bounds of "bounded" for all layers of a model, logits [layers, N] -> as
/// logits (kernels/decay_gate/depth_bounds.h).
at::Tensor DepthBounds(const at::Tensor& logits);

/// x / sqrt(sum x^2 + eps) over the last axis; as x, dense.
at::Tensor UnitNorm(const at::Tensor& x, double eps);

/// x + weight (x' - x), x' the row before x in its sequence; without a weight
/// x' - x. x [B, T, D]; before: the row in front of the first, [B, D] or
/// [N, D], cast to the dtype of x, absent: zeros; weight [D]; cu_seqlens
/// [N + 1]: sequences packed along T, with B = 1.
at::Tensor TokenShift(const at::Tensor& x, const OptionalTensor& before = {},
                      const OptionalTensor& weight = {},
                      const OptionalTensor& cu_seqlens = {});

/// x + delta w for each w of `weights`, [D] each or what broadcasts to x.
std::vector<at::Tensor> RowMixes(const at::Tensor& x, const at::Tensor& delta,
                                 const std::vector<at::Tensor>& weights);

/// base + factors values, a factor for each head: values [..., H, V], factors
/// [H] or [..., H], base as values or absent; in the dtype of the base, or else
/// of values.
at::Tensor HeadScale(const at::Tensor& values, const at::Tensor& factors,
                     const OptionalTensor& base = {});

/// kernels/entry_forms has the forms by name.
at::Tensor ApplyEntryForm(const at::Tensor& x, const std::string& form,
                          const OptionalTensor& y = {},
                          const OptionalTensor& weight = {},
                          double scale = 1.0);

/// (o + (sum r k weight) v) g a head: o, g [..., H W]; r, k, v [..., H, W];
/// weight [H, W].
at::Tensor GateCorrection(const at::Tensor& o, const at::Tensor& r,
                          const at::Tensor& k, const at::Tensor& weight,
                          const at::Tensor& v, const at::Tensor& g);

/// RWKV's feed-forward part: drop(max(z W_1^T, 0)^2) W_2^T with
/// z = TokenShift(x, before, shift). x [B, T, D], weight1 [F, D], weight2
/// [E, F]; returns [B, T, E].
struct ChannelMixArguments {
  at::Tensor x;
  OptionalTensor before;
  at::Tensor shift, weight1, weight2;
  Dropout dropout;
};
at::Tensor ChannelMix(const ChannelMixArguments& arguments);

}  // namespace tarn::ops
