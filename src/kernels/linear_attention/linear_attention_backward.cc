// Gradient in chunked form, denominator and states included. With a = factor *
// phi(q), b = phi(k), G_i = g_i / d_i, e_i = -(g_i . o_i) / d_i:
//   sweep over queries, forward in time, S and z rebuilt on the way:
//     dP = tril(G V^T + e 1^T);  da = G S^T + e z^T + dP b
//   sweep over keys, backward in time, R = dL/dS and r = dL/dz carried:
//     P = tril(a b^T);  dv = P^T G + b R;  db = dP^T a + V R^T + 1 r^T
//     R += a^T G;  r += a^T e
// The sweeps are independent tasks and nothing is saved between chunks. The
// price compared with one reverse sweep over stored states is computing dP
// twice. A sequence of one chunk has no states: there the second sweep alone
// makes all three gradients, da = dP b.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "kernels/linear_attention/geometry.h"
#include "kernels/linear_attention/gradient.h"
#include "kernels/linear_attention/linear_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "kernels/linear_attention/linear_attention_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/linear_attention/key_sweep-inl.h"
#include "kernels/linear_attention/query_sweep-inl.h"

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(QuerySweep);
HWY_EXPORT(KeySweep);

// sweeps: the number of sweeps over each head, one task each.
static int64_t BackwardHeads(const LinearAttentionInputs& in, int sweeps,
                             int width) {
  return HeadsPerTask(in.keys.size[2], sweeps * SequenceCount(in), width,
                      in.keys.size[3] * in.values.size[3] *
                          (in.values.size[2] / in.keys.size[2]));
}

static int64_t BackwardScratchFloats(const LinearAttentionOptions& options,
                                     const LinearAttentionInputs& in,
                                     int width) {
  // The scratch is enough for calls that carry states, and for those that do
  // not, whose chunks are longer.
  int64_t most = 0;
  for (const bool carries : {false, true}) {
    const bool one = IsOneChunk(options, in, carries);
    const int64_t states = BackwardHeads(in, one ? 1 : 2, width) *
                           (in.values.size[2] / in.keys.size[2]);
    const BackwardLayout at(ChunkTokens(options, in, carries), in.keys.size[3],
                            in.values.size[3], states, one);
    most = std::max(most, at.total);
  }
  return most;
}

size_t LinearAttentionBackwardWorkspaceBytes(
    const LinearAttentionOptions& options, const LinearAttentionInputs& in,
    int width) {
  return static_cast<size_t>(BackwardScratchFloats(options, in, width)) *
         sizeof(float) * static_cast<size_t>(width);
}

namespace {

void CheckGradients(const LinearAttentionOptions& options,
                    const LinearAttentionInputs& in,
                    const LinearAttentionGradients& grad) {
  const auto same = [](const char* name, const TensorView& given,
                       const TensorView& wanted) {
    if (!std::equal(given.size, given.size + 4, wanted.size) ||
        given.dtype != wanted.dtype) {
      throw ShapeError(
          StrCat("linear_attention gradient: ", name),
          StrCat(ShapeText(wanted.Shape()), " ", DTypeName(wanted.dtype)),
          StrCat(ShapeText(given.Shape()), " ", DTypeName(given.dtype)));
    }
  };
  same("grad_out", grad.grad_out, grad.out);
  same("grad_queries", grad.grad_queries, in.queries);
  same("grad_keys", grad.grad_keys, in.keys);
  same("grad_values", grad.grad_values, in.values);
  const bool empty = in.queries.size[0] * in.queries.size[1] == 0;
  if (options.denominator != Denominator::kNone && !empty &&
      grad.denominators == nullptr) {
    throw ArgumentError("linear_attention gradient: denominators",
                        "those of the forward call", "a null pointer");
  }
}

}  // namespace

void LinearAttentionBackward(const LinearAttentionOptions& options,
                             const LinearAttentionInputs& in,
                             const LinearAttentionGradients& gradients,
                             Executor& executor, void* workspace) {
  CheckLinearAttention(options, in, {.out = gradients.out});
  CheckGradients(options, in, gradients);
  const int64_t all_heads = in.queries.size[2];
  const bool one = IsOneChunk(options, in, CarriesStates(gradients));
  const int sweeps = one ? 1 : 2;
  const int64_t heads = BackwardHeads(in, sweeps, executor.width());
  const int64_t blocks = (all_heads + heads - 1) / heads;
  const int64_t tasks = SequenceCount(in) * blocks;
  const int64_t floats = BackwardScratchFloats(options, in, executor.width());
  // The sweep over keys is the longer one: it comes first in the queue.
  executor.ParallelFor(sweeps * tasks, [&](int64_t index, int worker) {
    const int64_t block = index % tasks;
    const int64_t first = block % blocks * heads;
    const BackwardTask task = {&options,
                               &in,
                               &gradients,
                               block / blocks,
                               first,
                               std::min(heads, all_heads - first),
                               in.values.size[2] / all_heads,
                               static_cast<float*>(workspace) + worker * floats,
                               one};
    if (index < tasks) {
      HWY_DYNAMIC_DISPATCH(KeySweep)(task);
    } else {
      HWY_DYNAMIC_DISPATCH(QuerySweep)(task);
    }
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
