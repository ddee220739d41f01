// Checks of a call of the short convolution, on any device.
#include "core/error.h"
#include "kernels/short_convolution/channels.h"
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
  const c10::SymInt states =
      want.Sequences(call.lengths, call.cu_seqlens, batch);
  want.State(call.initial_state, x,
             {states, call.weights.sym_size(1) - 1, channels});
}

}  // namespace tarn::ops::convolution
