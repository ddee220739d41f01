// torch.ops.tarn.linear_attention_packed: linear attention on queries, keys and
// values side by side in one tensor, which one product wrote. The kernel reads
// strided rows, so nothing is copied; the gradient is written side by side too,
// for the one product that reads it.
#include "torch_ops/linear/packed_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/memory.h"
#include "torch_ops/common/side_by_side.h"
#include "torch_ops/cuda/kernels.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace packed_attention {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Outputs = std::tuple<at::Tensor, at::Tensor>;  // out, denominators
using Signature = Outputs(const at::Tensor&, int64_t, int64_t, int64_t,
                          const OptionalTensor&, const OptionalTensor&, bool,
                          c10::string_view, c10::string_view, double, double,
                          int64_t);
using BackwardSignature = at::Tensor(const at::Tensor&, int64_t, int64_t,
                                     int64_t, const OptionalTensor&,
                                     const OptionalTensor&, const at::Tensor&,
                                     const at::Tensor&, const at::Tensor&, bool,
                                     c10::string_view, c10::string_view, double,
                                     double, int64_t);

constexpr char kOp[] = "linear_attention_packed";

// Throws unless packed is [B, T, 2 H K + HV V] with V >= 1.
void Check(const at::Tensor& packed, const PackedHeads& shape) {
  const bool counts = shape.heads >= 1 && shape.d_key >= 1 &&
                      shape.value_heads >= 1 &&
                      shape.value_heads % shape.heads == 0;
  if (!counts) {
    throw ArgumentError(
        StrCat(kOp, ": heads, value_heads, d_key"),
        "at least 1 each, value_heads a multiple of heads",
        StrCat(shape.heads, ", ", shape.value_heads, ", ", shape.d_key));
  }
  if (packed.dim() != 3) {
    throw ShapeError(StrCat(kOp, ": packed"), "3 axes [B, T, 2 H K + HV V]",
                     StrCat(packed.dim(), " axes"));
  }
  const c10::SymInt values = packed.sym_size(2) - 2 * shape.heads * shape.d_key;
  if (values < shape.value_heads || values % shape.value_heads != 0) {
    throw ShapeError(StrCat(kOp, ": packed"),
                     StrCat("a last size of ", 2 * shape.heads * shape.d_key,
                            " and a multiple of ", shape.value_heads),
                     StrCat(packed.sym_size(2)));
  }
}

// Views of the three parts of a tensor laid out as `packed`.
Operands Unpack(const at::Tensor& packed, const PackedHeads& shape) {
  const c10::SymInt batch = packed.sym_size(0), tokens = packed.sym_size(1);
  const int64_t keys = shape.heads * shape.d_key;
  const c10::SymInt values = packed.sym_size(2) - 2 * keys;
  const auto part = [&](c10::SymInt begin, c10::SymInt width, int64_t heads) {
    return packed.slice_symint(2, begin, begin + width)
        .unflatten_symint(2, {heads, width / heads});
  };
  Operands in;
  in.queries = part(0, keys, shape.heads);
  in.keys = part(keys, keys, shape.heads);
  in.values = part(2 * keys, values, shape.value_heads);
  return in;
}

Operands UnpackWith(const at::Tensor& packed, const PackedHeads& shape,
                    const OptionalTensor& key_mask,
                    const OptionalTensor& key_lengths) {
  Operands in = Unpack(packed, shape);
  in.key_mask = key_mask;
  in.key_lengths = key_lengths;
  return in;
}

Settings SettingsOf(bool causal, c10::string_view feature_map,
                    c10::string_view denominator, double eps, double scale,
                    int64_t chunk_size) {
  return {causal,
          0,
          std::string(feature_map),
          std::string(denominator),
          eps,
          scale,
          chunk_size};
}

Outputs ForwardComposed(const at::Tensor& packed, int64_t heads,
                        int64_t value_heads, int64_t d_key,
                        const OptionalTensor& key_mask,
                        const OptionalTensor& key_lengths, bool causal,
                        c10::string_view feature_map,
                        c10::string_view denominator, double eps, double scale,
                        int64_t chunk_size) {
  return WithTorchErrors([&]() -> Outputs {
    const PackedHeads shape = {heads, value_heads, d_key};
    Check(packed, shape);
    const auto [out, S, z, denominators] = ComposedLinearAttention(
        UnpackWith(packed, shape, key_mask, key_lengths),
        SettingsOf(causal, feature_map, denominator, eps, scale, chunk_size),
        /*return_state=*/false);
    return {out.flatten(2), denominators};
  });
}

// Whether kernels of the tensor's device serve the call.
bool Served(const at::Tensor& packed, const PackedHeads& shape,
            const Settings& settings) {
  if (!packed.is_cuda()) return KernelServesAttention(packed);
  return !AnyTangent(packed) && WithTorchErrors([&] {
    Check(packed, shape);
    return CudaServes(Unpack(packed, shape), settings);
  });
}

Outputs ForwardKernels(const at::Tensor& packed, int64_t heads,
                       int64_t value_heads, int64_t d_key,
                       const OptionalTensor& key_mask,
                       const OptionalTensor& key_lengths, bool causal,
                       c10::string_view feature_map,
                       c10::string_view denominator, double eps, double scale,
                       int64_t chunk_size) {
  const Settings settings =
      SettingsOf(causal, feature_map, denominator, eps, scale, chunk_size);
  if (!Served(packed, {heads, value_heads, d_key}, settings)) {
    return ForwardComposed(packed, heads, value_heads, d_key, key_mask,
                           key_lengths, causal, feature_map, denominator, eps,
                           scale, chunk_size);
  }
  return WithTorchErrors([&]() -> Outputs {
    const PackedHeads shape = {heads, value_heads, d_key};
    Check(packed, shape);
    const Operands in = UnpackWith(packed, shape, key_mask, key_lengths);
    const KernelCall call = MakeKernelCall(in, settings);
    const int64_t batch = packed.size(0), tokens = packed.size(1);
    const int64_t d_value = in.values.size(3);
    Results results;
    std::get<0>(results) = EmptyOn(
        packed, {batch, tokens, value_heads, d_value}, packed.scalar_type());
    std::get<1>(results) = std::get<2>(results) = EmptyOn(packed, {0});
    std::get<3>(results) = EmptyOn(packed, {batch, tokens, value_heads});
    RunForward(call, results);
    return {std::get<0>(results).view({batch, tokens, value_heads * d_value}),
            std::get<3>(results)};
  });
}

at::Tensor BackwardKernels(
    const at::Tensor& packed, int64_t heads, int64_t value_heads, int64_t d_key,
    const OptionalTensor& key_mask, const OptionalTensor& key_lengths,
    const at::Tensor& out, const at::Tensor& denominators,
    const at::Tensor& grad_out, bool causal, c10::string_view feature_map,
    c10::string_view denominator, double eps, double scale,
    int64_t chunk_size) {
  return WithTorchErrors([&] {
    const PackedHeads shape = {heads, value_heads, d_key};
    Check(packed, shape);
    if (packed.scalar_type() == at::kDouble) {
      throw DTypeError("linear_attention_packed_backward: packed",
                       "float32, bfloat16 or float16", "float64");
    }
    const Operands in = UnpackWith(packed, shape, key_mask, key_lengths);
    const KernelCall call = MakeKernelCall(
        in,
        SettingsOf(causal, feature_map, denominator, eps, scale, chunk_size));
    const std::vector<int64_t> values = in.values.sizes().vec();
    const std::vector<int64_t> flat = {values[0], values[1],
                                       values[2] * values[3]};
    WantLike(kOp, "out", out, packed, c10::fromIntArrayRefSlow(flat));
    WantLike(kOp, "grad_out", grad_out, packed, c10::fromIntArrayRefSlow(flat));
    GradientOperands gradients;
    gradients.out = out.view(values);
    gradients.denominators = denominators;
    gradients.grad_out = grad_out.contiguous().view(values);
    at::Tensor grad = EmptyOn(packed, packed.sizes(), packed.scalar_type());
    const Operands views = Unpack(grad, shape);
    const at::Tensor none = EmptyOn(packed, {0});
    Gradients results = {views.queries, views.keys, views.values, none, none};
    RunBackward(call, gradients, results);
    return grad;
  });
}

Outputs ForwardMeta(const at::Tensor& packed, int64_t heads,
                    int64_t value_heads, int64_t d_key, const OptionalTensor&,
                    const OptionalTensor&, bool, c10::string_view,
                    c10::string_view, double, double, int64_t) {
  return WithTorchErrors([&]() -> Outputs {
    Check(packed, {heads, value_heads, d_key});
    const c10::SymInt batch = packed.sym_size(0), tokens = packed.sym_size(1);
    const bool wide = packed.scalar_type() == at::kDouble;
    return {at::empty_symint(
                {batch, tokens, packed.sym_size(2) - 2 * heads * d_key},
                packed.options()),
            at::empty_symint(
                {batch, tokens, value_heads},
                packed.options().dtype(wide ? at::kDouble : at::kFloat))};
  });
}

at::Tensor BackwardMeta(const at::Tensor& packed, int64_t, int64_t, int64_t,
                        const OptionalTensor&, const OptionalTensor&,
                        const at::Tensor&, const at::Tensor&, const at::Tensor&,
                        bool, c10::string_view, c10::string_view, double,
                        double, int64_t) {
  return at::empty_symint(packed.sym_sizes(), packed.options());
}

Outputs Call(const at::Tensor& packed, const PackedHeads& shape,
             const OptionalTensor& key_mask, const OptionalTensor& key_lengths,
             const Settings& s) {
  static const auto handle = FindOp<Signature>("tarn::linear_attention_packed");
  return handle.call(packed, shape.heads, shape.value_heads, shape.d_key,
                     key_mask, key_lengths, s.causal, s.feature_map,
                     s.denominator, s.eps, s.scale, s.chunk_size);
}

at::Tensor CallBackward(const at::Tensor& packed, const PackedHeads& shape,
                        const OptionalTensor& key_mask,
                        const OptionalTensor& key_lengths,
                        const at::Tensor& out, const at::Tensor& denominators,
                        const at::Tensor& grad_out, const Settings& s) {
  static const auto handle = FindGradientOp<BackwardSignature>(
      "tarn::linear_attention_packed_backward");
  return handle.call(packed, shape.heads, shape.value_heads, shape.d_key,
                     key_mask, key_lengths, out, denominators, grad_out,
                     s.causal, s.feature_map, s.denominator, s.eps, s.scale,
                     s.chunk_size);
}

struct PackedFunction : public torch::autograd::Function<PackedFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& packed,
                               const PackedHeads& shape,
                               const OptionalTensor& key_mask,
                               const OptionalTensor& key_lengths,
                               const Settings& settings) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, denominators] =
        Call(packed, shape, key_mask, key_lengths, settings);
    ctx->save_for_backward({packed, UndefinedOr(key_mask),
                            UndefinedOr(key_lengths), out, denominators});
    auto& data = ctx->saved_data;
    data["shape"] = std::vector<int64_t>{shape.heads, shape.value_heads,
                                         shape.d_key, settings.chunk_size};
    data["causal"] = settings.causal;
    data["feature_map"] = settings.feature_map;
    data["denominator"] = settings.denominator;
    data["eps"] = settings.eps;
    data["scale"] = settings.scale;
    ctx->mark_non_differentiable({denominators});
    ctx->set_materialize_grads(false);
    return {out, denominators};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list s = ctx->get_saved_variables();
    auto& data = ctx->saved_data;
    if (!grads[0].defined()) return variable_list(5);
    const std::vector<int64_t> shape = data["shape"].toIntVector();
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found =
          ComposedGradients({s[0]}, grads, [&](const variable_list& x) {
            return variable_list{std::get<0>(ForwardComposed(
                x[0], shape[0], shape[1], shape[2], NoneOr(s[1]), NoneOr(s[2]),
                data["causal"].toBool(), data["feature_map"].toStringRef(),
                data["denominator"].toStringRef(), data["eps"].toDouble(),
                data["scale"].toDouble(), shape[3]))};
          });
      found.resize(5);
      return found;
    }
    const Settings settings =
        SettingsOf(data["causal"].toBool(), data["feature_map"].toStringRef(),
                   data["denominator"].toStringRef(), data["eps"].toDouble(),
                   data["scale"].toDouble(), shape[3]);
    const at::Tensor grad =
        CallBackward(s[0], {shape[0], shape[1], shape[2]}, NoneOr(s[1]),
                     NoneOr(s[2]), s[3], s[4], grads[0], settings);
    const at::Tensor none;
    return {grad, none, none, none, none};
  }
};

Outputs ForwardAutograd(const at::Tensor& packed, int64_t heads,
                        int64_t value_heads, int64_t d_key,
                        const OptionalTensor& key_mask,
                        const OptionalTensor& key_lengths, bool causal,
                        c10::string_view feature_map,
                        c10::string_view denominator, double eps, double scale,
                        int64_t chunk_size) {
  const PackedHeads shape = {heads, value_heads, d_key};
  const Settings settings =
      SettingsOf(causal, feature_map, denominator, eps, scale, chunk_size);
  if (!Served(packed, shape, settings)) {
    return ForwardComposed(packed, heads, value_heads, d_key, key_mask,
                           key_lengths, causal, feature_map, denominator, eps,
                           scale, chunk_size);
  }
  WithTorchErrors([&] {
    Check(packed, shape);
    (void)KernelOptions(settings);
  });
  if (!WantsGradient(packed)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Call(packed, shape, key_mask, key_lengths, settings);
  }
  const variable_list results =
      PackedFunction::apply(packed, shape, key_mask, key_lengths, settings);
  return {results[0], results[1]};
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "linear_attention_packed(Tensor packed, int heads, int value_heads, "
      "int d_key, Tensor? key_mask=None, Tensor? key_lengths=None, "
      "bool causal=True, str feature_map='elu1', str denominator='exact', "
      "float eps=1e-6, float scale=1.0, int chunk_size=0) -> "
      "(Tensor out, Tensor denominators)");
  m.def(
      "linear_attention_packed_backward(Tensor packed, int heads, "
      "int value_heads, int d_key, Tensor? key_mask, Tensor? key_lengths, "
      "Tensor out, Tensor denominators, Tensor grad_out, bool causal, "
      "str feature_map, str denominator, float eps, float scale, "
      "int chunk_size) -> Tensor");
}
void RegisterKernels(torch::Library& m) {
  m.impl("linear_attention_packed", &ForwardKernels);
  m.impl("linear_attention_packed_backward", &BackwardKernels);
}

TORCH_LIBRARY_IMPL(tarn, CPU, m) { RegisterKernels(m); }
TORCH_LIBRARY_IMPL(tarn, CUDA, m) { RegisterKernels(m); }
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("linear_attention_packed", &ForwardMeta);
  m.impl("linear_attention_packed_backward", &BackwardMeta);
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("linear_attention_packed", &ForwardComposed);
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("linear_attention_packed", &ForwardComposed);
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("linear_attention_packed", &ForwardAutograd);
}

}  // namespace
}  // namespace packed_attention

Operands GradientsSideBySide(const Operands& in, const GradientOperands& from,
                             const Settings& settings) {
  const bool known = !in.cu_seqlens && !in.initial_S && !in.initial_z &&
                     !from.grad_final_S && !from.grad_final_z &&
                     settings.causal_offset == 0;
  if (!known) return {};
  const at::Tensor packed = SideBySide({in.queries, in.keys, in.values});
  if (!packed.defined()) return {};
  const PackedHeads shape = {in.queries.size(2), in.values.size(2),
                             in.queries.size(3)};
  return packed_attention::Unpack(
      packed_attention::CallBackward(packed, shape, in.key_mask, in.key_lengths,
                                     from.out.flatten(2), from.denominators,
                                     from.grad_out.flatten(2), settings),
      shape);
}

at::Tensor LinearAttentionPacked(const at::Tensor& packed,
                                 const PackedHeads& shape,
                                 const LinearAttentionOptions& options,
                                 const OptionalTensor& key_mask) {
  return std::get<0>(packed_attention::Call(
      packed, shape, key_mask, {},
      {options.causal, 0, Name(options.feature_map), Name(options.denominator),
       options.eps, options.scale, options.chunk_size}));
}

}  // namespace tarn::ops
