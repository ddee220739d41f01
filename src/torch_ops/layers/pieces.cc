// torch.ops.tarn.pieces: a tensor [B, T, sum of widths] cut along its last
// axis, as torch's split does. Its gradient is free where those of the pieces
// are side by side as well, which the attention operators ensure: torch's split
// would copy them together.
#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/side_by_side.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace pieces {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr char kOp[] = "pieces";

struct PiecesFunction : public torch::autograd::Function<PiecesFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext*, const at::Tensor& packed,
                               at::SymIntArrayRef widths) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return packed.split_with_sizes_symint(widths, -1);
  }

  static variable_list backward(AutogradContext*, variable_list grads) {
    at::Tensor whole;
    // In a graph a view of the first gradient alone would leave out the others.
    if (!at::GradMode::is_enabled()) whole = SideBySide(grads);
    return {whole.defined() ? whole : at::cat(grads, -1), at::Tensor()};
  }
};

variable_list Pieces(const at::Tensor& packed, at::SymIntArrayRef widths) {
  return WithTorchErrors([&]() -> variable_list {
    c10::SymInt sum = 0;
    for (const c10::SymInt& width : widths) sum += width;
    if (packed.dim() != 3 || packed.sym_size(2) != sum) {
      throw ShapeError(StrCat(kOp, ": packed"), StrCat("[B, T, ", sum, "]"),
                       StrCat(packed.sym_sizes()));
    }
    const bool plain = !WantsGradient(packed) || !KernelServes(packed) ||
                       (TangentsExist() && HasTangent(packed));
    if (plain) return packed.split_with_sizes_symint(widths, -1);
    return PiecesFunction::apply(packed, widths);
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("pieces(Tensor packed, SymInt[] widths) -> Tensor[]", &Pieces);
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) { m.impl("pieces", &Pieces); }

}  // namespace
}  // namespace pieces
}  // namespace tarn::ops
