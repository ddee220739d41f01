// Argument checks: everything here runs before any work, and allocates only
// when it throws.
#include <algorithm>

#include "core/error.h"
#include "kernels/sequence_checks.h"
#include "kernels/short_convolution/channels.h"

namespace tarn {
namespace {
constexpr char kConvolution[] = "short_convolution: ";
}  // namespace

void CheckConvolutionTensor(const ShortConvolutionInputs& in,
                            const TensorView& view, const char* name) {
  const auto where = [&] { return StrCat(kConvolution, name); };
  if (!std::equal(view.size, view.size + 4, in.inputs.size)) {
    throw ShapeError(where(), ShapeText(in.inputs.Shape()),
                     ShapeText(view.Shape()));
  }
  if (view.dtype != in.inputs.dtype) {
    throw DTypeError(where(), DTypeName(in.inputs.dtype),
                     DTypeName(view.dtype));
  }
  if (view.data == nullptr && view.size[0] * view.size[1] != 0) {
    throw ArgumentError(where(), "data", "a null pointer");
  }
}

void CheckShortConvolution(const ShortConvolutionInputs& in,
                           const TensorView& out) {
  CheckConvolutionCall(in, out, "out");
}

void CheckConvolutionCall(const ShortConvolutionInputs& in,
                          const TensorView& out, const char* name) {
  const auto where = [](const char* name) {
    return StrCat(kConvolution, name);
  };
  const int64_t batch = in.inputs.size[0], seq_len = in.inputs.size[1];
  if (batch < 0 || seq_len < 0 || in.inputs.size[2] != 1 ||
      in.inputs.size[3] < 1) {
    throw ShapeError(where("inputs"), "[B, T, 1, D] with D >= 1",
                     ShapeText(in.inputs.Shape()));
  }
  if (in.width < 2 || in.width > kMostTaps) {
    throw ArgumentError(where("width"), StrCat("2 to ", kMostTaps),
                        StrCat(in.width));
  }
  if (in.weights == nullptr) {
    throw ArgumentError(where("weights"), "data", "a null pointer");
  }
  if (in.inputs.data == nullptr && batch * seq_len != 0) {
    throw ArgumentError(where("inputs"), "data", "a null pointer");
  }
  CheckConvolutionTensor(in, out, name);
  CheckSequences("short_convolution", "inputs", in.inputs, in.lengths,
                 in.cu_seqlens, in.sequences);
}

}  // namespace tarn
