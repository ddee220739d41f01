// The elementwise recurrence from plain torch operators, as a scan by doubling:
// after the pass of step s, the pair (a_t, b_t) holds the product of factors
// and the sum of what was taken in over the last 2 s tokens of t's sequence,
//   b_t <- b_t + a_t b_{t-s},  a_t <- a_t a_{t-s}
// (Hillis and Steele 1986). Pairs never reach over the first token of a
// sequence, so that a NaN stays in its own; factors are only multiplied, so
// that a gate of -inf is an exact reset. The initial state enters at the end,
// by the product of all factors before.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "core/error.h"
#include "torch_ops/common/sequences.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/elementwise/elementwise.h"

namespace tarn::ops {

void CheckElementwise(const ElementwiseCall& call) {
  const at::Tensor& x = call.inputs;
  const Wants want("elementwise_recurrence", x);
  want.Floating("inputs", x);
  if (x.dim() != 3 || x.sym_size(2) < 1) {
    throw ShapeError(want.Argument("inputs"), "[batch, seq_len, channels]",
                     SizesText(x.sym_sizes()));
  }
  want.Device("gates", call.gates);
  want.Floating("gates", call.gates);
  want.Sizes("gates", call.gates, x.sym_sizes().vec());
  const c10::SymInt states =
      want.Sequences(call.lengths, call.cu_seqlens, x.sym_size(0));
  want.State(call.initial_state, x, {states, x.sym_size(2)});
}

ElementwiseResults ComposedElementwise(const ElementwiseCall& call) {
  CheckElementwise(call);
  CheckSequences("elementwise_recurrence", call.lengths, call.cu_seqlens,
                 call.inputs.sym_size(1));
  const at::Tensor wide = Wide(call.inputs);
  const c10::SymInt tokens = wide.sym_size(0) * wide.sym_size(1),
                    channels = wide.sym_size(2);
  const TokenSequences sequences =
      SequencesOf(wide, call.lengths, call.cu_seqlens);
  const at::Tensor places = Range(tokens, wide);
  const at::Tensor before =  // tokens of its sequence before each token
      places - sequences.first.index_select(0, sequences.of_token);
  const at::Tensor used =
      (places < sequences.end.index_select(0, sequences.of_token)).unsqueeze(1);
  const at::Tensor zero = Zero(wide), one = zero + 1;
  // What is in pads must reach neither results nor gradients; a factor of 1
  // carries the state over them to the end of the row.
  at::Tensor sum =
      at::where(used, wide.reshape_symint({tokens, channels}), zero);
  at::Tensor factor =
      at::where(
          used,
          call.gates.to(wide.scalar_type()).reshape_symint({tokens, channels}),
          zero)
          .exp();
  const int64_t seq_len = wide.sym_size(1).guard_int(__FILE__, __LINE__);
  for (int64_t step = 1; step < seq_len; step *= 2) {
    const at::Tensor within = (before >= step).unsqueeze(1);
    // Row t - step of x, and `none` where that belongs to another sequence.
    const auto earlier = [&](const at::Tensor& x, const at::Tensor& none) {
      return at::where(within, x.roll(step, 0), none);
    };
    sum = sum + factor * earlier(sum, zero);
    factor = factor * earlier(factor, one);
  }
  const at::Tensor state =
      call.initial_state.has_value()
          ? *call.initial_state
          : at::zeros_symint({sequences.count, channels}, wide.options());
  sum = sum + factor * state.index_select(0, sequences.of_token);
  const at::Tensor out = at::where(used, sum, zero)
                             .reshape_symint(wide.sym_sizes())
                             .to(call.inputs.scalar_type());
  const at::Tensor none = at::empty({0}, wide.options());
  if (!call.return_state) return {out, none, none};
  // The sum at the last token in use; where there is none, the state itself, in
  // front of the list.
  const at::Tensor last = at::where(sequences.end > sequences.first,
                                    sequences.end - 1 + sequences.count,
                                    Range(sequences.count, wide));
  return {out, at::cat({state, sum}).index_select(0, last), none};
}

}  // namespace tarn::ops
