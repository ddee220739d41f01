// The selective scan from plain torch operators: h is an elementwise recurrence
// of D N channels with gates delta A and inputs delta x B, y its product with
// C.
#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>

#include "core/error.h"
#include "kernels/selective_scan/selective_scan.h"
#include "torch_ops/common/sequences.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/elementwise/elementwise.h"
#include "torch_ops/selective_scan/selective_scan.h"

namespace tarn::ops {

void CheckScan(const ScanCall& call) {
  const at::Tensor& x = call.inputs;
  const Wants want("selective_scan", x);
  want.Floating("inputs", x);
  if (x.dim() != 3 || x.sym_size(2) < 1) {
    throw ShapeError(want.Argument("inputs"), "[batch, seq_len, channels]",
                     SizesText(x.sym_sizes()));
  }
  const at::Tensor& keys = call.keys;
  if (keys.dim() != 3 || keys.sym_size(2) < 1 ||
      keys.sym_size(2) > kMostScanStates) {
    throw ShapeError(
        want.Argument("keys"),
        StrCat("[batch, seq_len, 1 to ", kMostScanStates, " states]"),
        SizesText(keys.sym_sizes()));
  }
  const c10::SymInt channels = x.sym_size(2), states = keys.sym_size(2);
  const auto check = [&](const char* name, const at::Tensor& y,
                         const std::vector<c10::SymInt>& sizes) {
    want.Device(name, y);
    want.Floating(name, y);
    want.Sizes(name, y, sizes);
  };
  check("steps", call.steps, x.sym_sizes().vec());
  check("rates", call.rates, {channels, states});
  check("keys", keys, {x.sym_size(0), x.sym_size(1), states});
  check("queries", call.queries, keys.sym_sizes().vec());
  if (call.skip.has_value()) check("skip", *call.skip, {channels});
  const c10::SymInt count =
      want.Sequences(call.lengths, call.cu_seqlens, x.sym_size(0));
  want.State(call.initial_state, x, {count, channels, states});
}

ScanResults ComposedScan(const ScanCall& call) {
  CheckScan(call);
  CheckSequences("selective_scan", call.lengths, call.cu_seqlens,
                 call.inputs.sym_size(1));
  const at::Tensor wide = Wide(call.inputs);
  const c10::SymInt batch = wide.sym_size(0), seq_len = wide.sym_size(1),
                    channels = wide.sym_size(2), states = call.keys.sym_size(2);
  const TokenSequences sequences =
      SequencesOf(wide, call.lengths, call.cu_seqlens);
  const at::Tensor used = (Range(batch * seq_len, wide) <
                           sequences.end.index_select(0, sequences.of_token))
                              .reshape_symint({batch, seq_len, 1});
  // What is in pads must reach neither results nor gradients.
  const auto rows = [&](const at::Tensor& x) {
    return at::where(used, x.to(wide.scalar_type()), Zero(wide));
  };
  const at::Tensor x = rows(call.inputs), steps = rows(call.steps);
  const at::Tensor rates = call.rates.to(wide.scalar_type());
  ElementwiseCall inner;
  inner.inputs = ((steps * x).unsqueeze(3) * rows(call.keys).unsqueeze(2))
                     .reshape_symint({batch, seq_len, channels * states});
  inner.gates = (steps.unsqueeze(3) * rates)
                    .reshape_symint({batch, seq_len, channels * states});
  inner.lengths = call.lengths;
  inner.cu_seqlens = call.cu_seqlens;
  if (call.initial_state.has_value()) {
    inner.initial_state = call.initial_state->reshape_symint(
        {sequences.count, channels * states});
  }
  inner.return_state = call.return_state;
  const auto [h, state, none] = ComposedElementwise(inner);
  at::Tensor out = (h.reshape_symint({batch, seq_len, channels, states}) *
                    rows(call.queries).unsqueeze(2))
                       .sum(3);
  if (call.skip.has_value()) {
    out = out + call.skip->to(wide.scalar_type()) * x;
  }
  return {out.to(call.inputs.scalar_type()),
          call.return_state
              ? state.reshape_symint({sequences.count, channels, states})
              : state,
          none};
}

}  // namespace tarn::ops
