// Checks of an operator's tensors whose sizes may be symbolic: what every
// argument of one call has to be, in errors that name the operator and the
// argument.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <string>
#include <vector>

namespace tarn::ops {

/// "[2, 3]".
std::string SizesText(c10::SymIntArrayRef sizes);

/// One operator's wishes; every member throws tarn::Error where one is not met.
/// Outlives neither the name nor the tensor that it is made with.
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

 private:
  const char* op_;
  const at::Tensor& like_;
};

}  // namespace tarn::ops
