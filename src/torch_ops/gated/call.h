// What the forms of the gated recurrences share: the arguments of a call as one
// value, its checks, its composed form and its kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "torch_ops/common/call.h"

namespace tarn::ops {

enum class GatedKind { kDecay, kDelta, kDplr };

constexpr const char* GatedName(GatedKind kind) {
  return kind == GatedKind::kDelta  ? "delta_attention"
         : kind == GatedKind::kDplr ? "dplr_attention"
                                    : "decay_attention";
}

/// Shapes as in GatedOptions. betas: delta alone, and required there; bonus:
/// decay alone; reads and writes: dplr alone, and required there.
struct GatedCall {
  GatedKind kind = GatedKind::kDecay;
  at::Tensor queries, keys, values;
  OptionalTensor gates, betas, bonus, reads, writes;
  OptionalTensor lengths, cu_seqlens, initial_state;
  double scale = 1.0;
  bool return_state = false;

  bool delta() const { return kind == GatedKind::kDelta; }
  bool dplr() const { return kind == GatedKind::kDplr; }
  const OptionalTensor& extra() const { return delta() ? betas : bonus; }
  const char* name() const { return GatedName(kind); }
};

/// out, final_state ([0] unless asked for), checkpoints ([0] unless a gradient
/// will ask for them).
using GatedResults = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
/// Gradients of the tensors of these names, extra: of betas or bonus; [0] for
/// what is absent.
struct GatedGradients {
  at::Tensor queries, keys, values, gates, extra, initial_state, reads, writes;
};

/// Throws tarn::Error naming the argument; reads no data. Sizes may be
/// symbolic.
void CheckGated(const GatedCall& call);

/// Computes the call by plain torch operators, differentiable to any order:
/// chunk by chunk, with products of decay factors as in the kernels and no sum
/// of logarithms. O(T) operators; O(C^2 K) memory a chunk of C = 16 tokens
/// under gates a channel.
GatedResults ComposedGated(const GatedCall& call);

/// The kernels on a checked call of the CPU, or of CUDA where they serve it.
/// checkpoints: whether a gradient will follow.
GatedResults ComputeGated(const GatedCall& call, bool checkpoints);
/// The tokens of each row, one after the other, on its state in place: states
/// [slots, HV, K, V] dense float32, slots [B] of the rows (none: row b's is b;
/// negative: the row has no tokens and its output is 0). Returns out.
at::Tensor ComputeGatedSteps(const GatedCall& call, at::Tensor& states,
                             OptionalTensor slots);
/// checkpoints: of ComputeGated, or [0]. grad_out and grad_state undefined:
/// zero.
GatedGradients ComputeGatedGradients(const GatedCall& call,
                                     const at::Tensor& checkpoints,
                                     const at::Tensor& grad_out,
                                     const at::Tensor& grad_state);

}  // namespace tarn::ops
