#include "torch_ops/common/forms.h"

#include <ATen/FuncTorchTLS.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>

namespace tarn::ops {
namespace {

thread_local bool force_composed = false;

// Whether a torch.func transform is active: it follows torch's operators only.
bool InsideTransform() {
  return c10::impl::tls_is_dispatch_key_included(
             c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         c10::impl::tls_is_dispatch_key_included(
             c10::DispatchKey::FuncTorchDynamicLayerBackMode);
}

bool ExchangeForced(bool on) { return std::exchange(force_composed, on); }

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("force_composed(bool on) -> bool", &ExchangeForced);
  m.def("composed_forced() -> bool", [] { return force_composed; });
}

}  // namespace

bool ComposedForced() { return force_composed; }

bool TangentsExist() {
  return torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr;
}

bool HasTangent(const std::optional<at::Tensor>& x) {
  return x.has_value() && x->defined() && x->_fw_grad(/*level=*/0).defined();
}

bool KernelsAllowed() { return !force_composed && !InsideTransform(); }

bool KernelsHere(const at::Tensor& x) {
  const c10::Device device = x.device();
  return KernelsAllowed() && (device.is_cpu() || device.is_meta());
}

ForceComposed::ForceComposed(bool on) : before_(ExchangeForced(on)) {}
ForceComposed::~ForceComposed() { force_composed = before_; }

bool AutocastOn(const at::Tensor& x) {
  const c10::DeviceType type = x.device().type();
  return at::autocast::is_autocast_available(type) &&
         at::autocast::is_autocast_enabled(type);
}

bool IsTraced(const at::Tensor& tensor) {
  return tensor.is_meta() || !tensor.has_storage() ||
         tensor.key_set().has(c10::DispatchKey::Python) ||
         c10::impl::TorchDispatchModeTLS::any_modes_set();
}

bool HoldsData(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && !IsTraced(tensor);
}

bool ShapesAlone(const at::Tensor& x) {
  using c10::impl::TorchDispatchModeKey;
  using c10::impl::TorchDispatchModeTLS;
  if (!IsTraced(x) || force_composed || InsideTransform()) return false;
  const c10::SymIntArrayRef sizes = x.sym_sizes();
  const bool symbols =
      std::any_of(sizes.begin(), sizes.end(),
                  [](const c10::SymInt& size) { return size.is_symbolic(); });
  return symbols &&
         !TorchDispatchModeTLS::get_mode(TorchDispatchModeKey::PROXY);
}

at::Tensor ShapeOf(const std::vector<c10::SymInt>& sizes, const at::Tensor& x,
                   at::ScalarType type,
                   const std::vector<std::optional<at::Tensor>>& inputs) {
  at::Tensor result = at::zeros_symint(sizes, x.options().dtype(type));
  for (const std::optional<at::Tensor>& input : inputs) {
    if (!input.has_value() || !input->defined() || !input->requires_grad()) {
      continue;
    }
    result = result + input->sum().to(type);
  }
  return result;
}

torch::autograd::variable_list ComposedGradients(
    const torch::autograd::variable_list& inputs,
    const torch::autograd::variable_list& grads,
    const std::function<torch::autograd::variable_list(
        const torch::autograd::variable_list&)>& f) {
  torch::autograd::variable_list aliases, wanted, outputs, grad_outputs;
  for (const at::Tensor& input : inputs) {
    // One tensor may be several arguments: each alias gets its own gradient.
    aliases.push_back(input.defined() ? input.view_as(input) : input);
    if (input.defined() && input.requires_grad()) {
      wanted.push_back(aliases.back());
    }
  }
  const torch::autograd::variable_list results = f(aliases);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined() || !results[i].requires_grad()) continue;
    if (i >= grads.size() || !grads[i].defined()) continue;
    outputs.push_back(results[i]);
    grad_outputs.push_back(grads[i]);
  }
  torch::autograd::variable_list found(wanted.size());
  if (!outputs.empty() && !wanted.empty()) {
    found = torch::autograd::grad(outputs, wanted, grad_outputs,
                                  /*retain_graph=*/true, /*create_graph=*/true,
                                  /*allow_unused=*/true);
  }
  torch::autograd::variable_list gradients(inputs.size());
  for (size_t i = 0, next = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    gradients[i] = found[next++];
  }
  return gradients;
}

}  // namespace tarn::ops
