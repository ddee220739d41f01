// Argument checks: everything here runs before any work, and allocates only
// when it throws.
#include "kernels/gated_norm/checks.h"

#include <algorithm>

#include "core/error.h"

namespace tarn {
namespace {

constexpr char kGatedNorm[] = "gated_norm: ";

// A view like x: the same shape and dtype, and data where there are rows.
void CheckBeside(const TensorView& x, const TensorView& view,
                 const char* name) {
  const auto where = [&] { return StrCat(kGatedNorm, name); };
  if (!std::equal(view.size, view.size + 4, x.size)) {
    throw ShapeError(where(), ShapeText(x.Shape()), ShapeText(view.Shape()));
  }
  if (view.dtype != x.dtype) {
    throw DTypeError(where(), DTypeName(x.dtype), DTypeName(view.dtype));
  }
  if (view.data == nullptr && x.size[0] * x.size[1] != 0) {
    throw ArgumentError(where(), "data", "a null pointer");
  }
}

}  // namespace

void CheckGatedNorm(const GatedNormOptions& options, const GatedNormInputs& in,
                    const TensorView& out, const char* out_name) {
  const TensorView& x = in.x;
  if (options.groups < 1 || options.width < 1) {
    throw ShapeError(StrCat(kGatedNorm, "groups, width"), "at least 1",
                     ShapeText({options.groups, options.width}));
  }
  if (x.size[0] < 0 || x.size[1] < 0 || x.size[2] != options.groups ||
      x.size[3] != options.width) {
    throw ShapeError(
        StrCat(kGatedNorm, "x"),
        StrCat("[B, T, ", options.groups, ", ", options.width, "]"),
        ShapeText(x.Shape()));
  }
  // Negated, so that NaN is refused too.
  if (!(options.eps >= 0)) {
    throw ArgumentError(StrCat(kGatedNorm, "eps"), "at least 0",
                        StrCat(options.eps));
  }
  CheckBeside(x, x, "x");
  if (in.gate.data != nullptr) CheckBeside(x, in.gate, "gate");
  if (in.weight == nullptr) {
    throw ArgumentError(StrCat(kGatedNorm, "weight"), "data", "a null pointer");
  }
  CheckBeside(x, out, out_name);
}

void CheckGatedNormGradients(const GatedNormOptions& options,
                             const GatedNormInputs& in,
                             const GatedNormGradients& gradients) {
  CheckGatedNorm(options, in, gradients.grad_x, "grad_x");
  CheckBeside(in.x, gradients.grad_out, "grad_out");
  if (in.gate.data != nullptr) {
    CheckBeside(in.x, gradients.grad_gate, "grad_gate");
  }
}

}  // namespace tarn
