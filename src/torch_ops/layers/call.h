// What the operators around attention share: checks of their arguments, dense
// float32 rows, and which of two forms serves a call.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/dropout/dropout.h"
#include "torch_ops/common/call.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/layers/layers.h"

namespace tarn::ops {

/// Throws DTypeError or ShapeError naming op and argument unless `tensor` has
/// the dtype and device of x and this shape.
void WantLike(const char* op, const char* name, const at::Tensor& tensor,
              const at::Tensor& x, at::SymIntArrayRef shape);

/// x as dense rows [rows, last size]; x has at least one axis.
at::Tensor AsRows(const at::Tensor& x);

/// The shape of x with another last size.
std::vector<c10::SymInt> WithLast(const at::Tensor& x, const c10::SymInt& last);
std::vector<int64_t> WithLast(const at::Tensor& x, int64_t last);

/// The kernels' form; throws ArgumentError without a seed where it needs one.
DropoutOptions KernelDropout(const char* op, double probability,
                             const OptionalTensor& seed);

/// x times the factors of dropout, in plain operators: the composed form.
at::Tensor ComposedDropout(const at::Tensor& x, double probability,
                           const OptionalTensor& seed);

Activation ParseActivation(const char* op, c10::string_view name);
NormKind ParseNormKind(const char* op, c10::string_view name);

inline const float* FloatsOrNull(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined()
             ? tensor->const_data_ptr<float>()
             : nullptr;
}

template <typename... Tensors>
bool WantsGradient(const Tensors&... tensors) {
  const auto requires_grad = [](const OptionalTensor& tensor) {
    return tensor.has_value() && tensor->defined() && tensor->requires_grad();
  };
  return at::GradMode::is_enabled() && (requires_grad(tensors) || ...);
}

/// One handle a process for each operator, found at the first call.
template <typename Signature>
c10::TypedOperatorHandle<Signature> FindOp(const char* name) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .template typed<Signature>();
}

/// The operator of a gradient, for the backward pass of an operator whose
/// gradients of gradients are composed. It is called below autograd, which has
/// nothing to record there, and whose fallback for operators without a formula
/// would box every call. Called by itself the operator still reports that it
/// has no formula.
template <typename Signature>
struct GradientOp;
template <typename Result, typename... Arguments>
struct GradientOp<Result(Arguments...)> {
  c10::TypedOperatorHandle<Result(Arguments...)> handle;

  Result call(Arguments... arguments) const {
    at::AutoDispatchBelowADInplaceOrView guard;
    return handle.call(std::forward<Arguments>(arguments)...);
  }
};
template <typename Signature>
GradientOp<Signature> FindGradientOp(const char* name) {
  return {FindOp<Signature>(name)};
}

}  // namespace tarn::ops
