// Which of an operator's forms serves a call, decided here alone. The kernel's
// form runs on the CPU (tensors of the meta device stand for the CPU's). The
// composed form, from torch's own operators, runs wherever torch does: other
// devices, float64, and what no kernel can follow: the transforms of
// torch.func, forward-mode derivatives, gradients of gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <optional>
#include <vector>

namespace tarn::ops {

/// Whether composed forms are forced on this thread.
bool ComposedForced();

/// Whether any tensor can carry a forward-mode derivative at present: asked
/// once, it spares lists of tensors a lock each.
bool TangentsExist();

/// Whether a forward-mode derivative is carried along.
bool HasTangent(const std::optional<at::Tensor>& x);

/// Whether any of them carries one.
template <typename... Tensors>
bool AnyTangent(const Tensors&... tensors) {
  return (HasTangent(tensors) || ...);
}

/// Whether kernels may be called in the present state of this thread: no
/// transform of torch.func, composed forms not forced.
bool KernelsAllowed();

/// The same where the device of x is the CPU, or meta: every operator has
/// kernels there. torch_ops/cuda/kernels.h says which calls have them on CUDA.
bool KernelsHere(const at::Tensor& x);

/// The same for a call: no differentiable argument may have a tangent either.
template <typename... Tensors>
bool OnKernelDevice(const at::Tensor& x, const Tensors&... others) {
  return KernelsHere(x) && !AnyTangent(x, others...);
}

/// The same for operators whose kernels take float32 alone.
template <typename... Tensors>
bool KernelServes(const at::Tensor& x, const Tensors&... others) {
  return x.scalar_type() == at::kFloat && OnKernelDevice(x, others...);
}

/// The same for operators whose kernels take all but float64.
template <typename... Tensors>
bool KernelServesAttention(const at::Tensor& x, const Tensors&... others) {
  return x.scalar_type() != at::kDouble && OnKernelDevice(x, others...);
}

/// While it exists, every operator called on this thread takes its composed
/// form, on any device: for tests and comparisons.
/// torch.ops.tarn.force_composed from Python.
class ForceComposed {
 public:
  explicit ForceComposed(bool on = true);
  ~ForceComposed();
  ForceComposed(const ForceComposed&) = delete;
  ForceComposed& operator=(const ForceComposed&) = delete;

 private:
  bool before_;
};

/// Whether torch casts the operands of operators where x is, on this thread.
bool AutocastOn(const at::Tensor& x);

/// True for tensors with readable bytes on the CPU: not while a compiler
/// traces.
bool HoldsData(const at::Tensor& tensor);

/// True while a compiler traces the tensor, or it has no data (meta).
bool IsTraced(const at::Tensor& tensor);

/// Whether a call has to say no more than what its results look like: sizes are
/// symbols, and no compiler records what is called. torch.export asks so, as it
/// keeps operators whole; a form whose steps depend on a size, a loop over
/// blocks, would bind its program to the sizes of the example.
bool ShapesAlone(const at::Tensor& x);

/// Zeros of these sizes on x's device, which require a gradient where one of
/// `inputs` does: a result under ShapesAlone.
at::Tensor ShapeOf(const std::vector<c10::SymInt>& sizes, const at::Tensor& x,
                   at::ScalarType type,
                   const std::vector<std::optional<at::Tensor>>& inputs);

/// Gradients of a kernel's call that may be differentiated again: `f`, the
/// composed form, on aliases of `inputs` (undefined ones stay so), pulled back
/// from `grads` (undefined: zero). For a backward pass under create_graph.
torch::autograd::variable_list ComposedGradients(
    const torch::autograd::variable_list& inputs,
    const torch::autograd::variable_list& grads,
    const std::function<torch::autograd::variable_list(
        const torch::autograd::variable_list&)>& f);

}  // namespace tarn::ops
