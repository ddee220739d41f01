// torch.ops.tarn.mlstm: the gates, the recurrence of decay_attention over
// values w (v, 1), and the quotient. Each has its kernel, gradient and composed
// form; this operator has none.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <torch/library.h>

#include <vector>

#include "torch_ops/cells/cells.h"
#include "torch_ops/common/sequences.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/gated/gated.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace mlstm {
namespace {

using T = at::Tensor;
using Maybe = OptionalTensor;

void Check(const MlstmCall& in) {
  const T& x = in.queries;
  const Wants wants("mlstm", x);
  wants.Floating("queries", x);
  for (const auto& [name, rows] :
       {std::pair{"queries", &in.queries}, std::pair{"keys", &in.keys},
        std::pair{"values", &in.values}}) {
    if (rows->dim() != 4 || rows->sym_size(3) < 1) {
      throw ShapeError(wants.Argument(name), "[batch, seq_len, heads, width]",
                       SizesText(rows->sym_sizes()));
    }
    wants.Device(name, *rows);
    wants.DType(name, *rows, x.scalar_type());
  }
  const c10::SymInt batch = x.sym_size(0), tokens = x.sym_size(1),
                    heads = x.sym_size(2), d_value = in.values.sym_size(3);
  wants.Sizes("keys", in.keys, x.sym_sizes().vec());
  wants.Sizes("values", in.values, {batch, tokens, heads, d_value});
  wants.Device("input_gates", in.input_gates);
  wants.Floating("input_gates", in.input_gates);
  wants.Sizes("input_gates", in.input_gates, {batch, tokens, heads});
  if (ComputeType(in.input_gates) != ComputeType(x)) {
    throw DTypeError(wants.Argument("input_gates"),
                     c10::toString(ComputeType(x)),
                     c10::toString(in.input_gates.scalar_type()));
  }
  CheckMlstmGates(in);
  const c10::SymInt states = wants.Sequences(in.lengths, in.cu_seqlens, batch);
  wants.State(in.initial_state, x, {states, heads, x.sym_size(3), d_value + 1});
  CheckSequences("mlstm", in.lengths, in.cu_seqlens, tokens);
}

MlstmResults Run(const MlstmCall& in) {
  Check(in);
  MlstmCall gated = in;
  gated.kept =
      NoneOr(KeptPositions(in.kept, in.lengths, in.queries.sym_size(1)));
  const auto [gates, factors, maxima, last] = MlstmGates(gated);
  const T w = factors.unsqueeze(-1);
  GatedOptions options;
  options.gates = gates;
  options.lengths = in.lengths;
  options.cu_seqlens = in.cu_seqlens;
  options.initial_state = in.initial_state;
  options.scale = in.scale;
  options.return_state = in.return_state;
  const GatedResult made =
      DecayAttention(Wide(in.queries), Wide(in.keys),
                     at::cat({Wide(in.values) * w, w}, -1), options);
  return {MlstmRead(made.out, maxima, in.eps).to(in.values.scalar_type()),
          made.final_state,
          in.return_state ? last : last.narrow_symint(0, 0, 0).flatten()};
}

MlstmResults Flat(const T& queries, const T& keys, const T& values,
                  const T& input_gates, const T& forget_gates,
                  const Maybe& input_bias, const Maybe& forget_bias,
                  double softcap, const Maybe& kept, const Maybe& lengths,
                  const Maybe& cu_seqlens, const Maybe& initial_state,
                  const Maybe& initial_maximum, double scale, double eps,
                  bool return_state) {
  return WithTorchErrors([&] {
    return Run({queries, keys, values, input_gates, forget_gates, input_bias,
                forget_bias, softcap, kept, lengths, cu_seqlens, initial_state,
                initial_maximum, scale, eps, return_state});
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "mlstm(Tensor queries, Tensor keys, Tensor values, Tensor input_gates, "
      "Tensor forget_gates, Tensor? input_bias=None, Tensor? forget_bias=None, "
      "float softcap=0.0, Tensor? kept=None, Tensor? lengths=None, "
      "Tensor? cu_seqlens=None, Tensor? initial_state=None, "
      "Tensor? initial_maximum=None, float scale=1.0, float eps=1e-06, "
      "bool return_state=False) -> (Tensor out, Tensor final_state, "
      "Tensor final_maximum)");
}
TORCH_LIBRARY_IMPL(tarn, CompositeImplicitAutograd, m) {
  m.impl("mlstm", TORCH_FN(Flat));
}

}  // namespace
}  // namespace mlstm

MlstmResults Mlstm(const MlstmCall& call) { return mlstm::Run(call); }

}  // namespace tarn::ops
