// Small tensors that composed forms share. Sizes may be symbolic.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <limits>
#include <optional>

namespace tarn::ops {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// An absent tensor as an undefined one, as autograd saves them, and back.
inline at::Tensor UndefinedOr(const std::optional<at::Tensor>& tensor) {
  return tensor.value_or(at::Tensor());
}
inline std::optional<at::Tensor> NoneOr(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}

/// 0, 1, ..., end - 1 as int64, on the device of `like`.
at::Tensor Range(const c10::SymInt& end, const at::Tensor& like);

/// One 0 of the dtype and device of `like`.
at::Tensor Zero(const at::Tensor& like);

/// float64 for float64, else float32: what a call is computed in.
at::ScalarType ComputeType(const at::Tensor& x);

/// x in its compute type: sums and denominators are never narrower.
at::Tensor Wide(const at::Tensor& x);

/// [B, end] bool of positions that a mask [B, end] and lengths [B] both keep;
/// undefined: all.
at::Tensor KeptPositions(const std::optional<at::Tensor>& mask,
                         const std::optional<at::Tensor>& lengths,
                         const c10::SymInt& end);

/// The numbers of x as dense float32 or int64, on its device; null where it is
/// absent. x is replaced by the copy where one is needed, and holds the
/// numbers.
const float* DenseFloats(std::optional<at::Tensor>& x);
const int64_t* DenseLongs(std::optional<at::Tensor>& x);

}  // namespace tarn::ops
