// A device besides the CPU for tests on machines that have none: torch's
// PrivateUse1 over plain memory. It has two properties of a real one that the
// CPU lacks: an operator that meets tensors of both is refused, and no kernel
// of the CPU is chosen for its tensors. Arithmetic is done on copies on the
// CPU, so that it gives numbers and every operator of torch has a form. It is
// included by one file of a test program.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>

#include "torch_nn/torch.h"

namespace tarn::nn::other_device {

inline const torch::Device kDevice(torch::kPrivateUse1, 0);

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : std::malloc(bytes);
    return {data, data, &std::free, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

inline Memory memory;

struct Guard final : c10::impl::NoOpDeviceGuardImpl<torch::kPrivateUse1> {
  torch::Device exchangeDevice(torch::Device) const override { return kDevice; }
  torch::Device getDevice() const override { return kDevice; }
  c10::Stream getStream(torch::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream exchangeStream(c10::Stream) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
};

inline torch::Tensor Empty(at::IntArrayRef size,
                           std::optional<at::ScalarType> dtype,
                           std::optional<at::Layout>, std::optional<at::Device>,
                           std::optional<bool>,
                           std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(
      size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype), format);
}

inline torch::Tensor EmptyStrided(at::IntArrayRef size, at::IntArrayRef stride,
                                  std::optional<at::ScalarType> dtype,
                                  std::optional<at::Layout>,
                                  std::optional<at::Device>,
                                  std::optional<bool>) {
  return at::detail::empty_strided_generic(
      size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype));
}

// The same memory, seen from the CPU.
inline torch::Tensor Seen(const torch::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return torch::empty(tensor.sizes(), tensor.scalar_type());
  }
  return torch::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                          torch::dtype(tensor.scalar_type()));
}

inline torch::Tensor CopyFrom(const torch::Tensor& from,
                              const torch::Tensor& to, bool) {
  Seen(to).copy_(Seen(from));
  return to;
}

inline torch::Tensor CopyFromAndResize(const torch::Tensor& from,
                                       const torch::Tensor& to) {
  if (from.sizes() != to.sizes()) to.resize_(from.sizes());
  return CopyFrom(from, to, false);
}

// Runs operators without a form of their own here. As on any device, tensors of
// another device are refused unless they are single numbers.
inline void OnCopies(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto check = [&](const torch::Tensor& tensor) {
    TORCH_CHECK(
        !tensor.defined() || tensor.device() == kDevice || tensor.dim() == 0,
        op.schema().name(), ": want tensors on ", kDevice, ", got one on ",
        tensor.device());
  };
  const size_t count = op.schema().arguments().size();
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    const c10::IValue& value = (*stack)[i];
    if (value.isTensor()) check(value.toTensor());
    if (value.isTensorList()) {
      for (const torch::Tensor& tensor : value.toTensorVector()) check(tensor);
    }
    if (!value.isOptionalTensorList()) continue;
    for (const std::optional<torch::Tensor>& tensor :
         value.toOptionalTensorVector()) {
      if (tensor) check(*tensor);
    }
  }
  at::native::cpu_fallback(op, stack);
}

// Moves the tensor itself, for all its holders: Module::to moves only between
// devices that torch knows by name.
inline void Move(const torch::Tensor& tensor) {
  const torch::Tensor there = tensor.detach().to(kDevice);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->_change_backend_component_keys(kDevice);
  impl->set_storage_keep_dtype(there.storage());
}

inline void Move(const torch::nn::Module& module) {
  for (const torch::Tensor& parameter : module.parameters()) Move(parameter);
  for (const torch::Tensor& buffer : module.buffers()) Move(buffer);
}

// Backward passes ask for the machine's accelerator: this is it.
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

inline const bool kRegistered = [] {
  c10::register_privateuse1_backend("other");
  at::RegisterPrivateUse1HooksInterface(new Hooks);  // torch keeps it
  return true;
}();

REGISTER_ALLOCATOR(torch::kPrivateUse1, &memory)
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&OnCopies>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", Empty);
  library.impl("empty_strided", EmptyStrided);
  library.impl("_copy_from", CopyFrom);
  library.impl("_copy_from_and_resize", CopyFromAndResize);
  library.impl("resize_", at::native::resize_);
  // Views share memory, which copies cannot.
  library.impl("view", at::native::view);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("unfold", at::native::unfold);
}

}  // namespace tarn::nn::other_device
