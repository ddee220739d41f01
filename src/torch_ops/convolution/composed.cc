// The short convolution from plain torch operators. Every token has a place in
// one list of rows, the states of all sequences followed by all inputs, and
// reads the W places of its sequence that end with its own: no bound of a
// sequence is read on the host, so that compilers can follow.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "torch_ops/common/sequences.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/convolution/call.h"

namespace tarn::ops::convolution {
ConvolutionResults Composed(const ConvolutionCall& call) {
  Check(call);
  CheckSequences("short_convolution", call.lengths, call.cu_seqlens,
                 call.inputs.sym_size(1));
  const c10::SymInt batch = call.inputs.sym_size(0),
                    tokens = call.inputs.sym_size(1),
                    channels = call.inputs.sym_size(2);
  const int64_t width = call.weights.size(1), kept = width - 1;
  const TokenSequences sequences =
      SequencesOf(call.inputs, call.lengths, call.cu_seqlens);
  const at::Tensor places = Range(batch * tokens, call.inputs);
  const at::Tensor first = sequences.first.index_select(0, sequences.of_token);
  const at::Tensor used =
      (places < sequences.end.index_select(0, sequences.of_token)).unsqueeze(1);

  const at::Tensor wide = Wide(call.inputs);
  const at::Tensor zero = Zero(wide);
  // What is in pads must reach neither results nor gradients.
  const at::Tensor inputs =
      at::where(used, wide.reshape_symint({batch * tokens, channels}), zero);
  const at::Tensor state =
      call.initial_state.has_value()
          ? *call.initial_state
          : at::zeros_symint({sequences.count, kept, channels}, wide.options());
  const at::Tensor pool = at::cat(
      {state.reshape_symint({sequences.count * kept, channels}), inputs});
  // Row of the pool that holds the token at `place` of a sequence: before its
  // first token those of its state.
  const auto row = [&](const at::Tensor& place, const at::Tensor& begin,
                       const at::Tensor& sequence) {
    return at::where(place >= begin, place + sequences.count * kept,
                     sequence * kept + (place - begin + kept));
  };

  const at::Tensor weights = call.weights.to(wide.scalar_type());
  at::Tensor sums =
      at::zeros_symint({batch * tokens, channels}, wide.options());
  if (call.bias.has_value()) sums = sums + call.bias->to(wide.scalar_type());
  for (int64_t tap = 0; tap < width; ++tap) {
    const at::Tensor source =
        row(places - (kept - tap), first, sequences.of_token);
    sums = sums + pool.index_select(0, source) * weights.select(1, tap);
  }
  if (call.activation == "silu") sums = sums * at::sigmoid(sums);
  const at::Tensor out = at::where(used, sums, zero)
                             .reshape_symint({batch, tokens, channels})
                             .to(call.inputs.scalar_type());
  if (!call.return_state) return {out, at::empty({0}, wide.options())};

  const at::Tensor back = Range(kept, call.inputs) - kept;  // -kept .. -1
  const at::Tensor last =
      row(sequences.end.unsqueeze(1) + back, sequences.first.unsqueeze(1),
          Range(sequences.count, call.inputs).unsqueeze(1));
  const at::Tensor final_state =
      pool.index_select(0, last.flatten())
          .reshape_symint({sequences.count, kept, channels});
  return {out, final_state};
}

}  // namespace tarn::ops::convolution
