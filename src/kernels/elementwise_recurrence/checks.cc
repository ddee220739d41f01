// Argument checks: everything here runs before any work, and allocates only
// when it throws.
#include <algorithm>

#include "core/error.h"
#include "kernels/elementwise_recurrence/channels.h"
#include "kernels/sequence_checks.h"

namespace tarn {
namespace {
constexpr char kElementwise[] = "elementwise_recurrence";
}  // namespace

int64_t ElementwiseCheckpoints(const ElementwiseRecurrenceInputs& in) {
  return in.inputs.size[0] * (in.inputs.size[1] / kElementwiseGroup);
}

void CheckElementwiseTensor(const ElementwiseRecurrenceInputs& in,
                            const TensorView& view, const TensorView& like,
                            const char* name) {
  const auto where = [&] { return StrCat(kElementwise, ": ", name); };
  if (!std::equal(view.size, view.size + 4, in.inputs.size)) {
    throw ShapeError(where(), ShapeText(in.inputs.Shape()),
                     ShapeText(view.Shape()));
  }
  if (view.dtype != like.dtype) {
    throw DTypeError(where(), DTypeName(like.dtype), DTypeName(view.dtype));
  }
  if (view.data == nullptr && view.size[0] * view.size[1] != 0) {
    throw ArgumentError(where(), "data", "a null pointer");
  }
}

void CheckElementwiseRecurrence(const ElementwiseRecurrenceInputs& in,
                                const TensorView& out) {
  CheckElementwiseCall(in, out, "out");
}

void CheckElementwiseCall(const ElementwiseRecurrenceInputs& in,
                          const TensorView& out, const char* name) {
  const TensorView& x = in.inputs;
  if (x.size[0] < 0 || x.size[1] < 0 || x.size[2] != 1 || x.size[3] < 1) {
    throw ShapeError(StrCat(kElementwise, ": inputs"),
                     "[B, T, 1, D] with D >= 1", ShapeText(x.Shape()));
  }
  CheckElementwiseTensor(in, x, x, "inputs");
  // Gates that decay slowly need more digits than half types have.
  TensorView gates = in.gates;
  if (gates.dtype == DType::kF32) gates.dtype = x.dtype;
  CheckElementwiseTensor(in, gates, x, "gates");
  CheckElementwiseTensor(in, out, x, name);
  CheckSequences(kElementwise, "inputs", x, in.lengths, in.cu_seqlens,
                 in.sequences);
}

}  // namespace tarn
