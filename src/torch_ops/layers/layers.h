// The operators around attention, as C++ modules call them: what torch.ops.tarn
// holds under the same names. float32 on the CPU runs the fused kernels, once
// differentiable; every other dtype runs the composed form (plain torch
// operators), differentiable to any order, as do SwigluFeedForward and
// ResidualNorm on other devices. Matrix products are torch's.
// Errors arrive as torch's: c10::TypeError for dtypes, c10::ValueError for
// shapes, ranges and devices. Thread-safe. `rows` stands for any leading axes.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "config/model_config.h"
#include "core/norm_kind.h"
#include "kernels/adam/adam.h"
#include "kernels/linear_attention/linear_attention.h"

namespace tarn::ops {

using OptionalTensor = std::optional<at::Tensor>;

/// Dropout of one call: probability in [0, 1), counted in 65,536ths, and a
/// seed, an int64 scalar tensor, required where probability > 0. The mask is a
/// function of both (kernels/dropout): the gradient draws it again.
struct Dropout {
  double probability = 0.0;
  OptionalTensor seed;
};
/// A seed from torch's default generator; no dropout where probability is 0.
Dropout DrawDropout(double probability);
/// `count` seeds at once, int64 [count].
at::Tensor DrawSeeds(int64_t count);

/// y = x weight^T + bias. x [rows, D], weight [E, D], bias [E] or absent;
/// returns [rows, E].
at::Tensor Affine(const at::Tensor& x, const at::Tensor& weight,
                  const OptionalTensor& bias = {});

/// drop(act(x weight1^T + bias1)) weight2^T: the feed-forward network without
/// its last bias, which the residual adds. x [rows, D], weight1 [F, D], bias1
/// [F], weight2 [E, F]; returns [rows, E].
at::Tensor FeedForward(const at::Tensor& x, const at::Tensor& weight1,
                       const at::Tensor& bias1, const at::Tensor& weight2,
                       Activation activation, const Dropout& dropout = {});

/// drop(silu(x weight1^T) * (x weight3^T)) weight2^T, without biases (Shazeer
/// 2020, eq. (6)): weight1 makes the gate, weight3 what is gated, weight2 maps
/// back down. x [rows, D], weight1 and weight3 [F, D], weight2 [E, F]; returns
/// [rows, E]. For its gradient it keeps both products, not what follows from
/// them.
at::Tensor SwigluFeedForward(const at::Tensor& x, const at::Tensor& weight1,
                             const at::Tensor& weight2,
                             const at::Tensor& weight3,
                             const Dropout& dropout = {});

/// s = residual + drop(x + bias), y = LayerNorm(s) gamma + beta; with kind kRms
/// y = s / sqrt(mean(s^2) + eps) gamma.
struct ResidualNormResult {
  at::Tensor y;  // [rows, D]; undefined without gamma
  at::Tensor s;  // [rows, D]
};
struct ResidualNormArguments {
  at::Tensor x;             // [rows, D]
  OptionalTensor residual;  // [rows, D]; absent: zeros
  OptionalTensor bias;      // [D]; absent: zeros
  OptionalTensor gamma;     // [D]; absent: no norm
  OptionalTensor beta;      // [D], with gamma of a layer norm
  double eps = 1e-5;
  Dropout dropout;
  NormKind kind = NormKind::kLayer;
};
ResidualNormResult ResidualNorm(const ResidualNormArguments& arguments);

/// The norm after a recurrence with its output gate, a = silu or sigmoid
/// (kernels/gated_norm has the equations and their sources):
///   (n(x) weight + bias) a(gate), or gate_first: n(x a(gate)) weight + bias
/// over the last axis; n is an RMS norm, or centred a layer norm. float32,
/// bfloat16 and float16 by the kernel, the rest by the composed form;
/// differentiable to any order. Keeps its inputs alone for the gradient.
struct GatedNormCall {
  at::Tensor x;         // [B, T, G, W]
  at::Tensor weight;    // [W], or one a group [G, W]; any floating dtype
  OptionalTensor bias;  // as weight; absent: zeros
  OptionalTensor gate;  // as x; absent: ones in place of a(gate)
  double eps = 1e-5;
  bool centred = false;
  std::string activation = "silu";  // or "sigmoid"
  bool gate_first = false;
};
at::Tensor GatedNorm(const GatedNormCall& call);  // as x, dense

/// A norm and the maps that read it, side by side (kernels/layer_heads):
/// n = norm(x), y = [n W_0^T + b_0, n W_1^T + b_1, ...].
struct LayerHeadsArguments {
  at::Tensor x;                     // [rows, D]
  std::vector<at::Tensor> weights;  // [E_i, D], up to four
  std::vector<at::Tensor> biases;   // [E_i]; empty: zeros
  OptionalTensor gamma, beta;       // [D]; no gamma: n = x
  double eps = 1e-5;
  NormKind norm_kind = NormKind::kLayer;
};
at::Tensor LayerHeads(const LayerHeadsArguments& arguments);  // [rows, sum E_i]

/// What a layer does after its mixer (kernels/layer_rest):
///   s = x + d1 (mixed out_weight^T + out_bias),  n = norm(s)
///   y = base + d3 (d2 act(n weight1^T + bias1) weight2^T + bias2)
/// Pre-norm: base = s. With end_gamma post-norm: base = n, and y is normed.
struct LayerRestArguments {
  at::Tensor x;                        // [rows, D]
  at::Tensor mixed;                    // [rows, V]
  at::Tensor out_weight;               // [D, V]
  OptionalTensor out_bias;             // [D]
  at::Tensor gamma;                    // [D]
  OptionalTensor beta;                 // [D], of a layer norm
  at::Tensor weight1, bias1;           // [F, D], [F]
  at::Tensor weight2;                  // [D, F]
  OptionalTensor bias2;                // [D]
  OptionalTensor end_gamma, end_beta;  // [D]
  double eps = 1e-5;                   // of both norms
  Activation activation = Activation::kGelu;
  NormKind norm_kind = NormKind::kLayer;
  std::vector<double> dropout;  // of d1, d2, d3; empty: none
  OptionalTensor seeds;         // int64 [3], with dropout
};
at::Tensor LayerRest(const LayerRestArguments& arguments);  // y [rows, D]

/// Linear attention on one tensor [B, T, 2 H K + HV V] that holds queries, keys
/// and values side by side, as written by one product for all three; returns
/// [B, T, HV V]. Its gradient is one such tensor too.
struct PackedHeads {
  int64_t heads = 1, value_heads = 1, d_key = 1;
};
at::Tensor LinearAttentionPacked(const at::Tensor& packed,
                                 const PackedHeads& shape,
                                 const LinearAttentionOptions& options,
                                 const OptionalTensor& key_mask = {});

/// -ln of the probability of each target byte under its mixture of logistics
/// (kernels/logistic_mixture). params [rows, 3 K]: logits, means, log-scales;
/// targets [rows], uint8 or int64 in 0..255; returns [rows], nats. float32 or
/// float64.
at::Tensor LogisticMixtureLoss(const at::Tensor& params,
                               const at::Tensor& targets);

/// One update of all parameters in place, in one pass (kernels/adam).
/// The four lists are parallel; gradient_scales: one factor a tensor, or empty
/// for ones. Not differentiable: call under NoGradGuard.
void AdamStep(const std::vector<at::Tensor>& parameters,
              const std::vector<at::Tensor>& gradients,
              const std::vector<at::Tensor>& m,
              const std::vector<at::Tensor>& v,
              const std::vector<double>& gradient_scales,
              const AdamStepOptions& options);

/// The norm of each tensor, float64 [n], in one pass.
at::Tensor GradientNorms(const std::vector<at::Tensor>& gradients);

}  // namespace tarn::ops
