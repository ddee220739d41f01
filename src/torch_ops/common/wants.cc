#include "torch_ops/common/wants.h"

#include "core/error.h"
#include "torch_ops/common/tensors.h"

namespace tarn::ops {

std::string SizesText(c10::SymIntArrayRef sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += StrCat(i == 0 ? "" : ", ", sizes[i]);
  }
  return text + "]";
}

std::string Wants::Argument(const char* name) const {
  return StrCat(op_, ": ", name);
}

void Wants::Sizes(const char* name, const at::Tensor& x,
                  const std::vector<c10::SymInt>& wanted) const {
  if (x.sym_sizes() == c10::SymIntArrayRef(wanted)) return;
  throw ShapeError(Argument(name), SizesText(wanted), SizesText(x.sym_sizes()));
}

void Wants::DType(const char* name, const at::Tensor& x,
                  at::ScalarType wanted) const {
  if (x.scalar_type() == wanted) return;
  throw DTypeError(Argument(name), c10::toString(wanted),
                   c10::toString(x.scalar_type()));
}

void Wants::Floating(const char* name, const at::Tensor& x) const {
  const at::ScalarType type = x.scalar_type();
  if (type == at::kFloat || type == at::kDouble || type == at::kBFloat16 ||
      type == at::kHalf) {
    return;
  }
  throw DTypeError(Argument(name), "float32, float64, bfloat16 or float16",
                   c10::toString(type));
}

void Wants::Device(const char* name, const at::Tensor& x) const {
  if (x.device() == like_.device()) return;
  throw DeviceError(Argument(name), like_.device().str(), x.device().str());
}

void Wants::Lengths(const char* name, const at::Tensor& x) const {
  Device(name, x);
  if (x.scalar_type() == at::kInt || x.scalar_type() == at::kLong) return;
  throw DTypeError(Argument(name), "Int or Long",
                   c10::toString(x.scalar_type()));
}

c10::SymInt Wants::Sequences(const std::optional<at::Tensor>& lengths,
                             const std::optional<at::Tensor>& cu_seqlens,
                             const c10::SymInt& batch) const {
  if (lengths.has_value()) {
    Lengths("lengths", *lengths);
    Sizes("lengths", *lengths, {batch});
  }
  if (!cu_seqlens.has_value()) return batch;
  Lengths("cu_seqlens", *cu_seqlens);
  if (cu_seqlens->dim() != 1 || cu_seqlens->sym_size(0) < 1) {
    throw ShapeError(Argument("cu_seqlens"), "[n] with n >= 1",
                     SizesText(cu_seqlens->sym_sizes()));
  }
  if (batch != 1 || lengths.has_value()) {
    throw ArgumentError(Argument("cu_seqlens"), "a batch of 1 and no lengths",
                        lengths.has_value() ? "lengths" : StrCat(batch));
  }
  return cu_seqlens->sym_size(0) - 1;
}

void Wants::State(const std::optional<at::Tensor>& initial_state,
                  const at::Tensor& x,
                  const std::vector<c10::SymInt>& wanted) const {
  if (!initial_state.has_value()) return;
  Device("initial_state", *initial_state);
  DType("initial_state", *initial_state, ComputeType(x));
  Sizes("initial_state", *initial_state, wanted);
}

}  // namespace tarn::ops
