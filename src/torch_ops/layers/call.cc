#include "torch_ops/layers/call.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"

namespace tarn::ops {
namespace {

std::string SymShapeText(at::SymIntArrayRef shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += StrCat(i == 0 ? "" : ", ", shape[i]);
  }
  return text + "]";
}

using ScalesSignature = at::Tensor(const at::Tensor&, c10::SymInt, c10::SymInt,
                                   double, const OptionalTensor&);

at::Tensor ScalesCpu(const at::Tensor& seed, c10::SymInt rows,
                     c10::SymInt width, double probability,
                     const OptionalTensor&) {
  return WithTorchErrors([&] {
    const DropoutOptions options =
        KernelDropout("dropout_scales", probability, seed);
    const int64_t sizes[] = {rows.expect_int(), width.expect_int()};
    if (sizes[0] < 0 || sizes[1] < 0) {
      throw ShapeError("dropout_scales: rows, width", "sizes of at least 0",
                       ShapeText({sizes[0], sizes[1]}));
    }
    at::Tensor scales = EmptyDense(sizes);
    TorchExecutor executor;
    DropoutScales(options, sizes[0], sizes[1], scales.data_ptr<float>(),
                  executor);
    return scales;
  });
}

// The dropout scales of devices besides the CPU, drawn there by a generator
// with that seed.
at::Tensor ScalesDrawn(const at::Tensor& seed, c10::SymInt rows,
                       c10::SymInt width, double probability,
                       const OptionalTensor& like) {
  return WithTorchErrors([&] {
    const DropoutOptions options =
        KernelDropout("dropout_scales", probability, seed);
    const c10::Device device = like ? like->device() : seed.device();
    at::Generator generator =
        at::globalContext().defaultGenerator(device).clone();
    generator.set_current_seed(options.seed);
    return at::empty_symint({std::move(rows), std::move(width)},
                            seed.options().dtype(at::kFloat).device(device))
        .bernoulli_(1.0 - probability, generator)
        .div_(1.0 - probability);
  });
}

at::Tensor ScalesMeta(const at::Tensor& seed, c10::SymInt rows,
                      c10::SymInt width, double, const OptionalTensor& like) {
  return at::empty_symint(
      {std::move(rows), std::move(width)},
      (like ? like->options() : seed.options()).dtype(at::kFloat));
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "dropout_scales(Tensor seed, SymInt rows, SymInt width, "
      "float probability, Tensor? like=None) -> Tensor");
  m.def("cached_memory() -> int[]", [] {
    const MemoryUse use = CacheUse();
    return std::vector<int64_t>{use.in_use_bytes, use.cached_bytes,
                                use.peak_bytes};
  });
  m.def("release_cached_memory() -> ()", &ReleaseCachedMemory);
}

TORCH_LIBRARY_IMPL(tarn, CPU, m) { m.impl("dropout_scales", &ScalesCpu); }
TORCH_LIBRARY_IMPL(tarn, Meta, m) { m.impl("dropout_scales", &ScalesMeta); }
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("dropout_scales", &ScalesDrawn);
}

// Differentiating these gradients again is an error, not zeros; those that may
// be differentiated are composed (Differentiable).
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  for (const char* op :
       {"affine_backward", "feed_forward_backward",
        "swiglu_feed_forward_backward", "residual_norm_backward",
        "layer_heads_forward", "layer_heads_backward", "layer_rest_forward",
        "layer_rest_backward", "linear_attention_packed_backward",
        "logistic_mixture_loss_backward"}) {
    m.impl(op, torch::autograd::autogradNotImplementedFallback());
  }
}

}  // namespace

void WantLike(const char* op, const char* name, const at::Tensor& tensor,
              const at::Tensor& x, at::SymIntArrayRef shape) {
  if (tensor.scalar_type() != x.scalar_type()) {
    throw DTypeError(StrCat(op, ": ", name), c10::toString(x.scalar_type()),
                     c10::toString(tensor.scalar_type()));
  }
  if (tensor.device() != x.device()) {
    throw DeviceError(StrCat(op, ": ", name), x.device().str(),
                      tensor.device().str());
  }
  if (tensor.sym_sizes() != shape) {
    throw ShapeError(StrCat(op, ": ", name), SymShapeText(shape),
                     SymShapeText(tensor.sym_sizes()));
  }
}

at::Tensor AsRows(const at::Tensor& x) {
  // Not reshape({-1, n}): -1 is ambiguous where n is 0.
  const int64_t width = x.size(-1);
  int64_t rows = 1;
  for (int64_t axis = 0; axis + 1 < x.dim(); ++axis) rows *= x.size(axis);
  return x.contiguous().view({rows, width});
}

std::vector<c10::SymInt> WithLast(const at::Tensor& x,
                                  const c10::SymInt& last) {
  std::vector<c10::SymInt> shape = x.sym_sizes().vec();
  shape.back() = last;
  return shape;
}

std::vector<int64_t> WithLast(const at::Tensor& x, int64_t last) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = last;
  return shape;
}

DropoutOptions KernelDropout(const char* op, double probability,
                             const OptionalTensor& seed) {
  DropoutOptions options;
  options.probability = probability;
  (void)MakeDropoutKey(options);  // checks the range
  if (probability == 0.0) return options;
  if (!seed.has_value()) {
    throw ArgumentError(StrCat(op, ": seed"), "a tensor with dropout > 0",
                        "none");
  }
  if (seed->numel() != 1 || seed->scalar_type() != at::kLong) {
    throw ArgumentError(StrCat(op, ": seed"), "one int64",
                        StrCat(c10::toString(seed->scalar_type()), " of shape ",
                               ShapeText(seed->sizes().vec())));
  }
  options.seed = static_cast<uint64_t>(seed->item<int64_t>());
  return options;
}

at::Tensor ComposedDropout(const at::Tensor& x, double probability,
                           const OptionalTensor& seed) {
  if (probability == 0.0) return x;
  if (!seed.has_value()) {
    throw ArgumentError("dropout: seed", "a tensor with dropout > 0", "none");
  }
  c10::SymInt rows = 1;
  for (int64_t axis = 0; axis + 1 < x.dim(); ++axis) rows *= x.sym_size(axis);
  static const auto handle = FindOp<ScalesSignature>("tarn::dropout_scales");
  // `like` says where to draw, if not on the CPU.
  const at::Tensor scales =
      handle.call(*seed, rows, x.sym_size(-1), probability,
                  x.device() == seed->device() ? OptionalTensor() : x.detach());
  return x * scales.view_symint(x.sym_sizes()).to(x.options());
}

Activation ParseActivation(const char* op, c10::string_view name) {
  if (name == "relu") return Activation::kRelu;
  if (name == "gelu") return Activation::kGelu;
  throw ArgumentError(StrCat(op, ": activation"), "one of relu, gelu",
                      std::string(name));
}

NormKind ParseNormKind(const char* op, c10::string_view name) {
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
    if (name == Name(kind)) return kind;
  }
  throw ArgumentError(StrCat(op, ": kind"), "one of layer, rms",
                      std::string(name));
}

Dropout DrawDropout(double probability) {
  if (probability == 0.0) return {};
  return {probability,
          at::empty({}, at::TensorOptions().dtype(at::kLong)).random_()};
}

at::Tensor DrawSeeds(int64_t count) {
  return at::empty({count}, at::TensorOptions().dtype(at::kLong)).random_();
}

}  // namespace tarn::ops
