// torch.ops.tarn.adam_step_ and gradient_norms: one pass over all parameters
// (kernels/adam). float32 runs the kernel; float64 plain operators.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <cmath>

#include "kernels/adam/adam.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace optimizer {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr char kOp[] = "adam_step_";

AdamKind ParseKind(c10::string_view name) {
  if (name == "adamw") return AdamKind::kAdamW;
  if (name == "radam") return AdamKind::kRAdam;
  throw ArgumentError(StrCat(kOp, ": kind"), "one of adamw, radam",
                      std::string(name));
}

struct Lists {
  at::TensorList parameters, gradients, m, v;
  at::ArrayRef<double> scales;
};

void CheckLists(const Lists& lists) {
  const size_t n = lists.parameters.size();
  const auto want = [&](const char* name, size_t given) {
    if (given != n) {
      throw ArgumentError(StrCat(kOp, ": ", name), StrCat(n, " entries"),
                          StrCat(given));
    }
  };
  want("gradients", lists.gradients.size());
  want("m", lists.m.size());
  want("v", lists.v.size());
  if (!lists.scales.empty()) want("gradient_scales", lists.scales.size());
  for (size_t i = 0; i < n; ++i) {
    const at::Tensor& p = lists.parameters[i];
    if (p.scalar_type() != at::kFloat && p.scalar_type() != at::kDouble) {
      throw DTypeError(StrCat(kOp, ": parameters"), "float32 or float64",
                       c10::toString(p.scalar_type()));
    }
    WantLike(kOp, "gradients", lists.gradients[i], p, p.sym_sizes());
    WantLike(kOp, "m", lists.m[i], p, p.sym_sizes());
    WantLike(kOp, "v", lists.v[i], p, p.sym_sizes());
    for (const at::Tensor* t : {&p, &lists.m[i], &lists.v[i]}) {
      if (!t->is_contiguous()) {
        throw ArgumentError(StrCat(kOp, ": parameters, m, v"), "dense tensors",
                            "a strided one");
      }
    }
  }
}

// The kernel's formula in torch's operators on lists, a few launches of a
// device whatever the number of tensors: float64, other devices, and the
// oracle.
void ComposedStep(const Lists& lists, const std::vector<size_t>& which,
                  const AdamFactors& f) {
  if (which.empty()) return;  // torch takes no empty list
  Tensors p, g, m, v;
  std::vector<at::Scalar> scales;
  for (const size_t i : which) {
    p.push_back(lists.parameters[i]);
    g.push_back(lists.gradients[i].contiguous());
    m.push_back(lists.m[i]);
    v.push_back(lists.v[i]);
    if (!lists.scales.empty()) scales.emplace_back(lists.scales[i]);
  }
  if (!scales.empty()) g = at::_foreach_mul(g, scales);
  at::_foreach_mul_(p, f.decay);
  at::_foreach_lerp_(m, g, 1 - f.beta1);
  at::_foreach_mul_(v, f.beta2);
  at::_foreach_addcmul_(v, g, g, 1 - f.beta2);
  if (!f.adaptive) {
    at::_foreach_add_(p, m, -f.rate);
    return;
  }
  const Tensors root = at::_foreach_sqrt(v);
  at::_foreach_mul_(root, f.root_factor);
  at::_foreach_add_(root, f.eps);
  at::_foreach_addcdiv_(p, m, root, -f.rate);
}

void Step(const Lists& lists, const AdamStepOptions& options) {
  const AdamFactors factors = MakeAdamFactors(options);
  CheckLists(lists);
  Tensors held;  // dense copies of strided gradients
  std::vector<AdamTensor> tensors;
  std::vector<size_t> composed;
  for (size_t i = 0; i < lists.parameters.size(); ++i) {
    if (!KernelServes(lists.parameters[i])) {
      composed.push_back(i);
      continue;
    }
    held.push_back(lists.gradients[i].contiguous());
    const float scale =
        lists.scales.empty() ? 1.0f : static_cast<float>(lists.scales[i]);
    tensors.push_back(
        {lists.parameters[i].data_ptr<float>(),
         held.back().const_data_ptr<float>(), lists.m[i].data_ptr<float>(),
         lists.v[i].data_ptr<float>(), lists.parameters[i].numel(), scale});
  }
  ComposedStep(lists, composed, factors);
  TorchExecutor executor;
  tarn::AdamStep(options, tensors, executor);
}

void StepOp(at::TensorList parameters, at::TensorList gradients,
            at::TensorList m, at::TensorList v,
            at::ArrayRef<double> gradient_scales, c10::string_view kind,
            int64_t update, double lr, double beta1, double beta2, double eps,
            double weight_decay) {
  WithTorchErrors([&] {
    Step({parameters, gradients, m, v, gradient_scales},
         {ParseKind(kind), lr, beta1, beta2, eps, weight_decay, update});
  });
}

// One number a tensor, fetched together: the device is waited for once.
at::Tensor ComposedNorms(at::TensorList gradients) {
  return at::stack(at::_foreach_norm(gradients, 2)).to(at::kCPU, at::kDouble);
}

at::Tensor Norms(at::TensorList gradients) {
  return WithTorchErrors([&] {
    Tensors held;
    std::vector<GradientView> views;
    for (const at::Tensor& g : gradients) {
      if (g.scalar_type() != at::kFloat) {
        throw DTypeError("gradient_norms: gradients", "float32",
                         c10::toString(g.scalar_type()));
      }
      if (!KernelServes(g)) return ComposedNorms(gradients);
      held.push_back(g.contiguous());
      views.push_back({held.back().const_data_ptr<float>(), g.numel()});
    }
    TorchExecutor executor;
    const std::vector<double> squares = SquaredNorms(views, executor);
    at::Tensor norms = at::empty({static_cast<int64_t>(squares.size())},
                                 at::TensorOptions().dtype(at::kDouble));
    double* out = norms.data_ptr<double>();
    for (size_t i = 0; i < squares.size(); ++i) out[i] = std::sqrt(squares[i]);
    return norms;
  });
}

at::Tensor NormsMeta(at::TensorList gradients) {
  return at::empty({static_cast<int64_t>(gradients.size())},
                   at::TensorOptions().dtype(at::kDouble).device(at::kMeta));
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "adam_step_(Tensor(a!)[] parameters, Tensor[] gradients, "
      "Tensor(b!)[] m, Tensor(c!)[] v, float[] gradient_scales, str kind, "
      "int update, float lr, float beta1=0.9, float beta2=0.999, "
      "float eps=1e-8, float weight_decay=0.01) -> ()");
  m.def("gradient_norms(Tensor[] gradients) -> Tensor");
}
// One registration serves every device: StepOp and Norms decide by the tensors.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("adam_step_", &StepOp);
  m.impl("gradient_norms", &Norms);
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) { m.impl("gradient_norms", &NormsMeta); }

}  // namespace
}  // namespace optimizer

void AdamStep(const std::vector<at::Tensor>& parameters,
              const std::vector<at::Tensor>& gradients,
              const std::vector<at::Tensor>& m,
              const std::vector<at::Tensor>& v,
              const std::vector<double>& gradient_scales,
              const AdamStepOptions& options) {
  WithTorchErrors([&] {
    optimizer::Step({parameters, gradients, m, v, gradient_scales}, options);
  });
}

at::Tensor GradientNorms(const std::vector<at::Tensor>& gradients) {
  return optimizer::Norms(gradients);
}

}  // namespace tarn::ops
