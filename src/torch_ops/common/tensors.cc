#include "torch_ops/common/tensors.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

namespace tarn::ops {

at::Tensor Range(const c10::SymInt& end, const at::Tensor& like) {
  return at::arange(at::Scalar(end), like.options().dtype(at::kLong));
}

at::Tensor Zero(const at::Tensor& like) {
  return at::zeros({}, like.options());
}

at::ScalarType ComputeType(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor Wide(const at::Tensor& x) { return x.to(ComputeType(x)); }

at::Tensor KeptPositions(const std::optional<at::Tensor>& mask,
                         const std::optional<at::Tensor>& lengths,
                         const c10::SymInt& end) {
  at::Tensor kept = mask.value_or(at::Tensor());
  if (lengths.has_value()) {
    const at::Tensor within =
        Range(end, *lengths).unsqueeze(0) < lengths->unsqueeze(1);
    kept = kept.defined() ? kept.logical_and(within) : within;
  }
  return kept;
}

const float* DenseFloats(std::optional<at::Tensor>& x) {
  if (!x.has_value()) return nullptr;
  x = x->to(at::kFloat).contiguous();
  return x->const_data_ptr<float>();
}

const int64_t* DenseLongs(std::optional<at::Tensor>& x) {
  if (!x.has_value()) return nullptr;
  x = x->to(at::kLong).contiguous();
  return x->const_data_ptr<int64_t>();
}

}  // namespace tarn::ops
