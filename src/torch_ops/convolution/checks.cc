// Checks of a call of the short convolution, on any device.
#include "core/error.h"
#include "kernels/short_convolution/channels.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/convolution/call.h"

namespace tarn::ops::convolution {
namespace {

std::string Argument(const char* name) {
  return StrCat("short_convolution: ", name);
}

std::string Text(c10::SymIntArrayRef sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += StrCat(i == 0 ? "" : ", ", sizes[i]);
  }
  return text + "]";
}

void WantSizes(const char* name, const at::Tensor& x,
               const std::vector<c10::SymInt>& wanted) {
  if (x.sym_sizes() == c10::SymIntArrayRef(wanted)) return;
  throw ShapeError(Argument(name), Text(wanted), Text(x.sym_sizes()));
}

void WantFloating(const char* name, const at::Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  if (type == at::kFloat || type == at::kDouble || type == at::kBFloat16 ||
      type == at::kHalf) {
    return;
  }
  throw DTypeError(Argument(name), "float32, float64, bfloat16 or float16",
                   c10::toString(type));
}

void WantLengths(const char* name, const at::Tensor& x) {
  if (x.scalar_type() == at::kInt || x.scalar_type() == at::kLong) return;
  throw DTypeError(Argument(name), "Int or Long",
                   c10::toString(x.scalar_type()));
}

}  // namespace

void Check(const ConvolutionCall& call) {
  const at::Tensor& x = call.inputs;
  const auto device = [&](const char* name, const at::Tensor& other) {
    if (other.device() == x.device()) return;
    throw DeviceError(Argument(name), x.device().str(), other.device().str());
  };
  WantFloating("inputs", x);
  if (x.dim() != 3 || x.sym_size(2) < 1) {
    throw ShapeError(Argument("inputs"), "[batch, seq_len, channels]",
                     Text(x.sym_sizes()));
  }
  const c10::SymInt batch = x.sym_size(0), channels = x.sym_size(2);
  device("weights", call.weights);
  WantFloating("weights", call.weights);
  if (call.weights.dim() != 2 || call.weights.sym_size(0) != channels ||
      call.weights.sym_size(1) < 2 || call.weights.sym_size(1) > kMostTaps) {
    throw ShapeError(Argument("weights"),
                     StrCat("[", channels, ", 2 to ", kMostTaps, "]"),
                     Text(call.weights.sym_sizes()));
  }
  if (call.bias.has_value()) {
    device("bias", *call.bias);
    WantFloating("bias", *call.bias);
    WantSizes("bias", *call.bias, {channels});
  }
  if (call.activation != "silu" && call.activation != "none") {
    throw ArgumentError(Argument("activation"), "silu or none",
                        call.activation);
  }
  c10::SymInt states = batch;
  if (call.lengths.has_value()) {
    device("lengths", *call.lengths);
    WantLengths("lengths", *call.lengths);
    WantSizes("lengths", *call.lengths, {batch});
  }
  if (call.cu_seqlens.has_value()) {
    device("cu_seqlens", *call.cu_seqlens);
    WantLengths("cu_seqlens", *call.cu_seqlens);
    if (call.cu_seqlens->dim() != 1 || call.cu_seqlens->sym_size(0) < 1) {
      throw ShapeError(Argument("cu_seqlens"), "[n] with n >= 1",
                       Text(call.cu_seqlens->sym_sizes()));
    }
    if (batch != 1 || call.lengths.has_value()) {
      throw ArgumentError(Argument("cu_seqlens"), "a batch of 1 and no lengths",
                          call.lengths.has_value() ? "lengths" : StrCat(batch));
    }
    states = call.cu_seqlens->sym_size(0) - 1;
  }
  if (call.initial_state.has_value()) {
    device("initial_state", *call.initial_state);
    if (call.initial_state->scalar_type() != ComputeType(x)) {
      throw DTypeError(Argument("initial_state"), c10::toString(ComputeType(x)),
                       c10::toString(call.initial_state->scalar_type()));
    }
    WantSizes("initial_state", *call.initial_state,
              {states, call.weights.sym_size(1) - 1, channels});
  }
}

}  // namespace tarn::ops::convolution
