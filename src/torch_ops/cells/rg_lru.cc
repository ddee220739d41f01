// torch.ops.tarn.rg_lru: the gates, then the elementwise recurrence. Each has
// its kernel, gradient and composed form; this operator has none.
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <optional>

#include "torch_ops/cells/cells.h"
#include "torch_ops/common/sequences.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/elementwise/elementwise.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace rg_lru {
namespace {

using T = at::Tensor;
using Maybe = OptionalTensor;

void Check(const RgLruCall& in) {
  const T& x = in.gates.inputs;
  const Wants wants("rg_lru", x);
  if (x.dim() != 3 || x.sym_size(2) < 1) {
    throw ShapeError(wants.Argument("inputs"), "[batch, seq_len, channels]",
                     SizesText(x.sym_sizes()));
  }
  CheckRgLruGates(in.gates);
  const c10::SymInt states =
      wants.Sequences(in.lengths, in.cu_seqlens, x.sym_size(0));
  wants.State(in.initial_state, x, {states, x.sym_size(2)});
  CheckSequences("rg_lru", in.lengths, in.cu_seqlens, x.sym_size(1));
}

// [B, T] bool: the first kept token of each sequence.
T FirstTokens(const RgLruCall& in, const Maybe& kept) {
  const T& x = in.gates.inputs;
  const c10::SymInt batch = x.sym_size(0), seq_len = x.sym_size(1);
  if (kept.has_value() && !in.cu_seqlens.has_value()) {
    return kept->logical_and(kept->cumsum(1) == 1);
  }
  const TokenSequences sequences = SequencesOf(x, {}, in.cu_seqlens);
  return (Range(batch * seq_len, x) ==
          sequences.first.index_select(0, sequences.of_token))
      .view_symint({batch, seq_len});
}

RgLruResults Run(const RgLruCall& in) {
  Check(in);
  const T& x = in.gates.inputs;
  RgLruGatesCall gates = in.gates;
  // What pads hold must not reach the gradients of what all rows share.
  gates.kept = NoneOr(KeptPositions(in.gates.kept, in.lengths, x.sym_size(1)));
  if (!gates.begins.has_value() && !in.initial_state.has_value()) {
    gates.begins = FirstTokens(in, gates.kept);
  }
  ElementwiseCall call;
  std::tie(call.inputs, call.gates) = RgLruGates(gates);
  call.lengths = in.lengths;
  call.cu_seqlens = in.cu_seqlens;
  call.initial_state = in.initial_state;
  call.return_state = in.return_state;
  const auto [out, state, none] = ElementwiseRecurrence(call);
  return {out.to(x.scalar_type()), state};
}

RgLruResults Flat(const T& inputs, const T& input_gates,
                  const T& recurrence_gates, const T& Lambda,
                  const Maybe& input_bias, const Maybe& recurrence_bias,
                  const Maybe& begins, const Maybe& kept, const Maybe& lengths,
                  const Maybe& cu_seqlens, const Maybe& initial_state,
                  bool return_state, std::optional<double> most_slope) {
  return WithTorchErrors([&] {
    return Run({{inputs, input_gates, recurrence_gates, Lambda, input_bias,
                 recurrence_bias, begins, kept, most_slope.value_or(kInfinity)},
                lengths,
                cu_seqlens,
                initial_state,
                return_state});
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "rg_lru(Tensor inputs, Tensor input_gates, Tensor recurrence_gates, "
      "Tensor Lambda, Tensor? input_bias=None, Tensor? recurrence_bias=None, "
      "Tensor? begins=None, Tensor? kept=None, Tensor? lengths=None, "
      "Tensor? cu_seqlens=None, Tensor? initial_state=None, "
      "bool return_state=False, float? most_slope=None) -> (Tensor out, Tensor "
      "final_state)");
}
TORCH_LIBRARY_IMPL(tarn, CompositeImplicitAutograd, m) {
  m.impl("rg_lru", TORCH_FN(Flat));
}

}  // namespace
}  // namespace rg_lru

RgLruResults RgLru(const RgLruCall& call) { return rg_lru::Run(call); }

}  // namespace tarn::ops
