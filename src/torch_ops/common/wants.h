// Checks of an operator's tensors whose sizes may be symbolic: what every
// argument of one call has to be, in errors that name the operator and the
// argument.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <optional>
#include <string>
#include <vector>

namespace tarn::ops {

/// "[2, 3]".
std::string SizesText(c10::SymIntArrayRef sizes);

/// Checks the arguments of one operator; every member throws tarn::Error where
/// one is wrong. Outlives neither the name nor the tensor that it is made with.
class Wants {
 public:
  /// like: the tensor on whose device all others have to be.
  Wants(const char* op, const at::Tensor& like) : op_(op), like_(like) {}

  [[nodiscard]] std::string Argument(const char* name) const;
  void Sizes(const char* name, const at::Tensor& x,
             const std::vector<c10::SymInt>& wanted) const;
  void DType(const char* name, const at::Tensor& x,
             at::ScalarType wanted) const;
  /// float32, float64, bfloat16 or float16.
  void Floating(const char* name, const at::Tensor& x) const;
  void Device(const char* name, const at::Tensor& x) const;
  /// int32 or int64, on the device.
  void Lengths(const char* name, const at::Tensor& x) const;
  /// lengths [batch], or cu_seqlens [N + 1] with a batch of 1, or neither.
  /// Returns how many states the call has: batch, or N.
  c10::SymInt Sequences(const std::optional<at::Tensor>& lengths,
                        const std::optional<at::Tensor>& cu_seqlens,
                        const c10::SymInt& batch) const;
  /// initial_state, where it is given: float32, or float64 where `x` is, of
  /// these sizes.
  void State(const std::optional<at::Tensor>& initial_state,
             const at::Tensor& x, const std::vector<c10::SymInt>& wanted) const;

 private:
  const char* op_;
  const at::Tensor& like_;
};

}  // namespace tarn::ops
