// The norm after a recurrence with its output gate. For each row x of W
// entries (a token's group), with a = silu or sigma and eps inside the root:
//   n(u) = u / sqrt(mean(u^2) + eps), centred: (u - mean) / sqrt(var + eps)
//   gate after:  out = (n(x) * weight + bias) * a(gate)
//   gate first:  out = n(x * a(gate)) * weight + bias
// Without a gate a = 1. After: RetNet, GLA, Gated DeltaNet, KDA (Yang et al.
// 2024, arXiv 2412.06464); first: Mamba-2 (Dao and Gu 2024, arXiv 2405.21060);
// centred, each head a group: the group norm of RWKV-6 and RWKV-7.
// Gradient, with dy what reaches n weight + bias, g = dy * weight:
//   du = (g - n mean(g n)) / root, centred: also - mean(g) inside
//   after: dy = dout a(gate), dgate = dout (n weight + bias) a'(gate), dx = du
//   first: dy = dout, dx = du a(gate), dgate = du x a'(gate)
//   dweight, dbias: dy n and dy, summed over rows
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/executor.h"
#include "core/tensor_view.h"

namespace tarn {

enum class NormGate { kSilu, kSigmoid };

struct GatedNormOptions {
  int64_t groups = 1, width = 0;  // G and W: a token has G rows side by side
  double eps = 1e-5;
  bool centred = false;
  NormGate activation = NormGate::kSilu;
  bool gate_first = false;
  bool weight_by_group = false;  // weight and bias are [G, W], else [W]
};

/// float32, bfloat16 or float16, one dtype for all; arithmetic in float32.
struct GatedNormInputs {
  TensorView x;                   // [B, T, G, W]
  TensorView gate;                // the same; null data: no gate
  const float* weight = nullptr;  // [W] or [G, W], dense
  const float* bias = nullptr;    // as weight; null: zeros
};

struct GatedNormGradients {
  TensorView grad_out;           // [B, T, G, W]
  TensorView grad_x;             // written
  TensorView grad_gate;          // written where there is a gate
  float* grad_weight = nullptr;  // as weight; written where not null
  float* grad_bias = nullptr;    // the same
};

/// Throws ShapeError, DTypeError or ArgumentError naming the argument.
void CheckGatedNorm(const GatedNormOptions& options, const GatedNormInputs& in,
                    const TensorView& out, const char* out_name = "out");

/// out [B, T, G, W], dtype of x; may be x or the gate. Checks first, then runs
/// on `executor`. B, T = 0 are valid. Allocates nothing; the same bits for any
/// executor. O(B T G W).
void GatedNormForward(const GatedNormOptions& options,
                      const GatedNormInputs& in, const TensorView& out,
                      Executor& executor);

/// One token, [G, W] dense, on the calling thread: the bits of the forward
/// pass. gate, bias: may be null; out may be x or gate. Checks nothing.
void GatedNormRow(const GatedNormOptions& options, const float* x,
                  const float* gate, const float* weight, const float* bias,
                  float* out);

/// Bytes of 64-byte aligned scratch for the gradient on `workers` workers.
size_t GatedNormGradientBytes(const GatedNormOptions& options,
                              const TensorView& x, int workers);

/// Gradients of a scalar loss; the statistics are computed again. grad_x may be
/// grad_out. workspace: GatedNormGradientBytes for the executor's width.
void GatedNormBackward(const GatedNormOptions& options,
                       const GatedNormInputs& in,
                       const GatedNormGradients& gradients, Executor& executor,
                       void* workspace);

}  // namespace tarn
