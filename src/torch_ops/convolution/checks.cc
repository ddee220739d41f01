// Checks of a call of the short convolution, on any device.
#include "core/error.h"
#include "kernels/short_convolution/channels.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/convolution/call.h"

namespace tarn::ops::convolution {

void Check(const ConvolutionCall& call) {
  const at::Tensor& x = call.inputs;
  const Wants want("short_convolution", x);
  want.Floating("inputs", x);
  if (x.dim() != 3 || x.sym_size(2) < 1) {
    throw ShapeError(want.Argument("inputs"), "[batch, seq_len, channels]",
                     SizesText(x.sym_sizes()));
  }
  const c10::SymInt batch = x.sym_size(0), channels = x.sym_size(2);
  want.Device("weights", call.weights);
  want.Floating("weights", call.weights);
  if (call.weights.dim() != 2 || call.weights.sym_size(0) != channels ||
      call.weights.sym_size(1) < 2 || call.weights.sym_size(1) > kMostTaps) {
    throw ShapeError(want.Argument("weights"),
                     StrCat("[", channels, ", 2 to ", kMostTaps, "]"),
                     SizesText(call.weights.sym_sizes()));
  }
  if (call.bias.has_value()) {
    want.Device("bias", *call.bias);
    want.Floating("bias", *call.bias);
    want.Sizes("bias", *call.bias, {channels});
  }
  if (call.activation != "silu" && call.activation != "none") {
    throw ArgumentError(want.Argument("activation"), "silu or none",
                        call.activation);
  }
  c10::SymInt states = batch;
  if (call.lengths.has_value()) {
    want.Lengths("lengths", *call.lengths);
    want.Sizes("lengths", *call.lengths, {batch});
  }
  if (call.cu_seqlens.has_value()) {
    want.Lengths("cu_seqlens", *call.cu_seqlens);
    if (call.cu_seqlens->dim() != 1 || call.cu_seqlens->sym_size(0) < 1) {
      throw ShapeError(want.Argument("cu_seqlens"), "[n] with n >= 1",
                       SizesText(call.cu_seqlens->sym_sizes()));
    }
    if (batch != 1 || call.lengths.has_value()) {
      throw ArgumentError(want.Argument("cu_seqlens"),
                          "a batch of 1 and no lengths",
                          call.lengths.has_value() ? "lengths" : StrCat(batch));
    }
    states = call.cu_seqlens->sym_size(0) - 1;
  }
  if (call.initial_state.has_value()) {
    want.Device("initial_state", *call.initial_state);
    if (call.initial_state->scalar_type() != ComputeType(x)) {
      throw DTypeError(want.Argument("initial_state"),
                       c10::toString(ComputeType(x)),
                       c10::toString(call.initial_state->scalar_type()));
    }
    want.Sizes("initial_state", *call.initial_state,
               {states, call.weights.sym_size(1) - 1, channels});
  }
}

}  // namespace tarn::ops::convolution
