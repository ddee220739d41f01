#include "torch_ops/common/side_by_side.h"

#include <ATen/ops/as_strided.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <cstdint>

namespace tarn::ops {
namespace {

// Entries of a token; 0 unless they are without gaps.
int64_t DenseWidth(const at::Tensor& piece) {
  if (piece.dim() == 3) return piece.stride(2) == 1 ? piece.size(2) : 0;
  const bool dense = piece.dim() == 4 && piece.stride(3) == 1 &&
                     piece.stride(2) == piece.size(3);
  return dense ? piece.size(2) * piece.size(3) : 0;
}

}  // namespace

at::Tensor SideBySide(at::TensorList pieces) {
  if (pieces.empty() || c10::impl::TorchDispatchModeTLS::any_modes_set()) {
    return {};
  }
  for (const at::Tensor& piece : pieces) {
    const bool plain =
        piece.defined() && piece.device().is_cpu() &&
        piece.layout() == at::kStrided && piece.has_storage() &&
        !piece.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
    if (!plain) return {};
  }
  const at::Tensor& first = pieces[0];
  int64_t width = 0;
  for (const at::Tensor& piece : pieces) {
    const int64_t own = DenseWidth(piece);
    const bool next = own > 0 && piece.numel() > 0 &&
                      piece.scalar_type() == first.scalar_type() &&
                      piece.is_alias_of(first) &&
                      piece.storage_offset() == first.storage_offset() + width;
    if (!next) return {};
    width += own;
  }
  const int64_t batch = first.size(0), tokens = first.size(1);
  for (const at::Tensor& piece : pieces) {
    const bool alike = piece.size(0) == batch && piece.size(1) == tokens &&
                       (tokens == 1 || piece.stride(1) == width) &&
                       (batch == 1 || piece.stride(0) == tokens * width);
    if (!alike) return {};
  }
  return first.as_strided({batch, tokens, width}, {tokens * width, width, 1},
                          first.storage_offset());
}

}  // namespace tarn::ops
