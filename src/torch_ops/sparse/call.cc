#include "torch_ops/sparse/call.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

namespace tarn::ops {
void CheckOperands(const char* op, const at::Tensor& queries,
                   const at::Tensor& keys, const at::Tensor& values) {
  const at::ScalarType dtype = queries.scalar_type();
  if (dtype != at::kFloat && dtype != at::kDouble && dtype != at::kBFloat16 &&
      dtype != at::kHalf) {
    throw DTypeError(StrCat(op, ": queries"),
                     "one of float32, float64, bfloat16, float16",
                     c10::toString(dtype));
  }
  const std::pair<const char*, const at::Tensor*> operands[] = {
      {"queries", &queries}, {"keys", &keys}, {"values", &values}};
  for (const auto& [name, tensor] : operands) {
    if (tensor->dim() != 4) {
      throw ShapeError(StrCat(op, ": ", name),
                       "4 axes [batch, time, heads, width]",
                       StrCat(tensor->dim(), " axes"));
    }
    if (tensor->sym_size(2) < 1 || tensor->sym_size(3) < 1) {
      throw ShapeError(StrCat(op, ": ", name),
                       "at least one head and a width of at least 1",
                       StrCat("heads ", tensor->sym_size(2), ", width ",
                              tensor->sym_size(3)));
    }
  }
  const c10::SymInt batch = queries.sym_size(0), heads = queries.sym_size(2);
  WantLike(op, "keys", keys, queries,
           {batch, keys.sym_size(1), heads, queries.sym_size(3)});
  WantLike(op, "values", values, queries,
           {batch, keys.sym_size(1), heads, values.sym_size(3)});
}

void CheckLengths(const char* op, const char* name,
                  const OptionalTensor& lengths, const at::Tensor& like,
                  const c10::SymInt& end) {
  if (!lengths.has_value()) return;
  const std::string where = StrCat(op, ": ", name);
  const at::ScalarType dtype = lengths->scalar_type();
  if (dtype != at::kInt && dtype != at::kLong) {
    throw DTypeError(where, "int32 or int64", c10::toString(dtype));
  }
  if (lengths->device() != like.device()) {
    throw DeviceError(where, like.device().str(), lengths->device().str());
  }
  if (lengths->dim() != 1 || lengths->sym_size(0) != like.sym_size(0)) {
    throw ShapeError(
        where, StrCat("[", like.sym_size(0), "]"),
        StrCat(lengths->dim(), " axes of ", lengths->sym_numel(), " entries"));
  }
  if (!HoldsData(*lengths)) return;
  const at::Tensor dense = lengths->to(at::kLong).contiguous();
  for (int64_t row = 0; row < dense.numel(); ++row) {
    const int64_t length = dense.const_data_ptr<int64_t>()[row];
    if (length < 0 || end < length) {
      throw ArgumentError(StrCat(where, "[", row, "]"),
                          StrCat("a length in [0, ", end, "]"),
                          std::to_string(length));
    }
  }
}

at::Tensor Skip(const at::Tensor& x, const at::Tensor& kept) {
  const at::Tensor wide = Wide(x);
  if (!kept.defined()) return wide;
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[0] = kept.size(0);
  shape[1] = kept.size(1);
  return at::where(kept.view(shape), wide, at::zeros({}, wide.options()));
}

at::Tensor FiniteOrZero(const at::Tensor& x) {
  return at::where(x.isfinite(), x, at::zeros({}, x.options()));
}

at::Tensor NotFiniteRows(const at::Tensor& x) {
  return x.isfinite().all(-1, /*keepdim=*/true).logical_not();
}

at::Tensor SpoilRows(const at::Tensor& out, const at::Tensor& queries,
                     const at::Tensor& spoiled) {
  // Each row's factor, 0 or NaN, multiplies its query, so that the gradient
  // takes the same factor. (The sum comes last: that of large queries may
  // overflow, and 0 * inf is NaN.)
  const at::Tensor factor =
      at::zeros(spoiled.sizes(), out.options())
          .masked_fill(spoiled, std::numeric_limits<double>::quiet_NaN());
  return out.masked_fill(spoiled, 0.0) +
         (queries * factor).sum(-1, /*keepdim=*/true);
}

std::vector<at::Tensor> RecomputedGradients(
    const std::vector<at::Tensor>& inputs, const at::Tensor& grad_out,
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& f) {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  const c10::impl::ForceDispatchKeyGuard above_autograd(
      local.included_,
      local.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  const at::AutoGradMode recording(true);
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().requires_grad_());
  }
  const at::Tensor out = f(leaves);
  std::vector<at::Tensor> gradients(inputs.size());
  if (out.requires_grad()) {
    gradients =
        torch::autograd::grad({out}, leaves, {grad_out}, /*retain_graph=*/false,
                              /*create_graph=*/false, /*allow_unused=*/true);
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) gradients[i] = at::zeros_like(inputs[i]);
  }
  return gradients;
}

}  // namespace tarn::ops
