// CPU and Meta forms of softmax attention: the blocked kernel, or the composed
// form (composed.cc).
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "kernels/softmax_attention/blocked_attention.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/layers/call.h"
#include "torch_ops/softmax/register.h"

namespace tarn::ops {
namespace softmax_attention {
namespace {

constexpr char kOp[] = "softmax_attention";

// Float32 tensors of a call in the kernel's terms; they keep the data alive.
struct KernelTensors {
  at::Tensor queries, keys, values, key_mask, key_lengths, mask, bias, sinks;
  BlockedAttentionOptions options;
  BlockedAttentionInputs inputs;
};

at::Tensor DenseRows(const at::Tensor& tensor) {
  const at::Tensor rows = tensor.to(at::kFloat);
  const bool dense = rows.size(3) <= 1 || rows.stride(3) == 1;
  return dense ? rows : rows.contiguous();
}

TensorView RowsView(const at::Tensor& rows) {
  TensorView view;
  view.data = const_cast<void*>(rows.const_data_ptr());
  for (int axis = 0; axis < 4; ++axis) view.size[axis] = rows.size(axis);
  for (int axis = 0; axis < 3; ++axis) view.stride[axis] = rows.stride(axis);
  return view;
}

// A [B, H, T, S] plane; broadcast axes get stride 0.
template <typename T>
ScorePlane<T> PlaneOf(const SoftmaxCall& call, at::Tensor& plane) {
  plane = plane.expand({call.queries.size(0), call.queries.size(2),
                        call.queries.size(1), call.keys.size(1)});
  ScorePlane<T> view;
  view.data = static_cast<const T*>(plane.const_data_ptr());
  for (int axis = 0; axis < 4; ++axis) view.stride[axis] = plane.stride(axis);
  return view;
}

KernelTensors MakeKernelTensors(const SoftmaxCall& call) {
  KernelTensors k;
  k.queries = DenseRows(call.queries);
  k.keys = DenseRows(call.keys);
  k.values = DenseRows(call.values);
  k.inputs.queries = RowsView(k.queries);
  k.inputs.keys = RowsView(k.keys);
  k.inputs.values = RowsView(k.values);
  const AttentionMasks& masks = call.masks;
  if (masks.key_mask.has_value()) {
    k.key_mask = masks.key_mask->contiguous();
    k.inputs.key_mask =
        static_cast<const uint8_t*>(k.key_mask.const_data_ptr());
  }
  if (masks.key_lengths.has_value()) {
    k.key_lengths = masks.key_lengths->to(at::kLong).contiguous();
    k.inputs.key_lengths = k.key_lengths.const_data_ptr<int64_t>();
  }
  if (masks.attention_mask.has_value()) {
    k.mask = *masks.attention_mask;
    k.inputs.mask = PlaneOf<uint8_t>(call, k.mask);
  }
  if (call.options.bias.has_value()) {
    k.bias = call.options.bias->to(at::kFloat);
    k.inputs.bias = PlaneOf<float>(call, k.bias);
  }
  if (call.options.sinks.has_value()) {
    k.sinks = call.options.sinks->to(at::kFloat).contiguous();
    k.inputs.sinks = k.sinks.const_data_ptr<float>();
  }
  k.options.scale = static_cast<float>(call.temperature());
  k.options.window = call.options.window.expect_int();
  k.options.softcap = static_cast<float>(call.options.softcap);
  k.options.causal = masks.causal;
  k.options.causal_offset = masks.causal_offset.expect_int();
  k.options.local_context = call.local_context.expect_int();
  k.options.dropout = KernelDropout(kOp, call.options.dropout.probability,
                                    call.options.dropout.seed);
  return k;
}

TwoTensors ForwardCpu(const SoftmaxCall& call) {
  return WithTorchErrors([&]() -> TwoTensors {
    CheckSoftmaxCall(kOp, call);
    if (call.composes()) return ComposedSoftmax(call);
    const KernelTensors k = MakeKernelTensors(call);
    const TensorView& q = k.inputs.queries;
    const at::Tensor out =
        EmptyDense({q.size[0], q.size[1], q.size[2], k.inputs.values.size[3]});
    const at::Tensor statistics =
        EmptyDense({q.size[0], q.size[2], q.size[1], 2});
    TorchExecutor executor;
    const Workspace workspace(BlockedAttentionWorkspaceBytes(
        k.inputs, executor.width(), /*backward=*/false));
    BlockedAttentionForward(k.options, k.inputs,
                            {RowsView(out), statistics.data_ptr<float>()},
                            executor, workspace.data());
    return {out.to(call.queries.scalar_type()), statistics};
  });
}

TwoTensors ForwardMeta(const SoftmaxCall& call) {
  return WithTorchErrors([&]() -> TwoTensors {
    CheckSoftmaxCall(kOp, call);
    const at::Tensor& q = call.queries;
    const at::Tensor out = at::empty_symint(
        {q.sym_size(0), q.sym_size(1), q.sym_size(2), call.values.sym_size(3)},
        q.options());
    if (q.scalar_type() == at::kDouble) {
      return {out, at::empty({0}, q.options())};
    }
    return {out,
            at::empty_symint({q.sym_size(0), q.sym_size(2), q.sym_size(1), 2},
                             q.options().dtype(at::kFloat))};
  });
}

void WantKernelDType(const SoftmaxCall& call) {
  if (call.queries.scalar_type() != at::kDouble) return;
  throw DTypeError("softmax_attention_backward: queries",
                   "float32, bfloat16 or float16",
                   "float64, whose gradient autograd takes from the composed "
                   "form of softmax_attention");
}

void WantShape(const char* name, const at::Tensor& tensor,
               at::IntArrayRef sizes) {
  if (tensor.sizes() != sizes) {
    throw ShapeError(StrCat("softmax_attention_backward: ", name),
                     ShapeText(sizes.vec()), ShapeText(tensor.sizes().vec()));
  }
}

// The bias gradient [B or 1, H or 1, T or 1, S or 1], and the kernel's view.
at::Tensor BiasGradient(const SoftmaxCall& call, bool wanted,
                        BlockedAttentionGradients& g) {
  if (!wanted || !call.options.bias.has_value()) {
    return at::empty({0}, call.queries.options());
  }
  const at::Tensor& bias = *call.options.bias;
  const at::Tensor grad = EmptyDense(bias.sizes());
  for (int64_t axis = 0; axis < bias.dim(); ++axis) {
    g.bias_size[4 - bias.dim() + axis] = bias.size(axis);
  }
  g.grad_bias = grad.data_ptr<float>();
  return grad;
}

Gradients5 BackwardCpu(const SoftmaxCall& call, const GradientInputs& from) {
  return WithTorchErrors([&]() -> Gradients5 {
    CheckSoftmaxCall(kOp, call);
    WantKernelDType(call);
    const KernelTensors k = MakeKernelTensors(call);
    const int64_t* q = k.inputs.queries.size;
    const int64_t out_shape[] = {q[0], q[1], q[2], k.inputs.values.size[3]};
    WantShape("out", from.out, out_shape);
    WantShape("grad_out", from.grad_out, out_shape);
    WantShape("statistics", from.statistics, {q[0], q[2], q[1], 2});
    const at::Tensor out = DenseRows(from.out);
    const at::Tensor grad_out = DenseRows(from.grad_out);
    const at::Tensor statistics = from.statistics.contiguous();
    const at::Tensor queries = EmptyDense(k.queries.sizes());
    const at::Tensor keys = EmptyDense(k.keys.sizes());
    const at::Tensor values = EmptyDense(k.values.sizes());
    BlockedAttentionGradients g;
    g.out = RowsView(out);
    g.grad_out = RowsView(grad_out);
    g.statistics = statistics.const_data_ptr<float>();
    g.grad_queries = RowsView(queries);
    g.grad_keys = RowsView(keys);
    g.grad_values = RowsView(values);
    const at::Tensor bias = BiasGradient(call, from.want_bias, g);
    const bool sinks = call.options.sinks.has_value();
    // Of each batch row.
    const at::Tensor of_sinks =
        sinks ? EmptyDense({q[0], q[2]}) : at::empty({0}, queries.options());
    if (sinks) g.grad_sinks = of_sinks.data_ptr<float>();
    TorchExecutor executor;
    const Workspace workspace(BlockedAttentionWorkspaceBytes(
        k.inputs, executor.width(), /*backward=*/true));
    BlockedAttentionBackward(k.options, k.inputs, g, executor,
                             workspace.data());
    const at::ScalarType dtype = call.queries.scalar_type();
    return {
        queries.to(dtype), keys.to(dtype), values.to(dtype),
        bias.to(call.options.bias.has_value() ? call.options.bias->scalar_type()
                                              : dtype),
        sinks ? of_sinks.sum(0).to(call.options.sinks->scalar_type())
              : of_sinks.to(dtype)};
  });
}

Gradients5 BackwardMeta(const SoftmaxCall& call, const GradientInputs& from) {
  const auto like = [](const at::Tensor& tensor) {
    return at::empty_symint(tensor.sym_sizes(), tensor.options());
  };
  return {like(call.queries), like(call.keys), like(call.values),
          from.want_bias && call.options.bias.has_value()
              ? like(*call.options.bias)
              : at::empty({0}, call.queries.options()),
          call.options.sinks.has_value()
              ? like(*call.options.sinks)
              : at::empty({0}, call.queries.options())};
}

at::Tensor TopkCpu(const SoftmaxCall& call, const c10::SymInt& width) {
  return WithTorchErrors([&] {
    CheckSoftmaxCall("exact_topk_attention", call);
    if (width < 1 || width > call.keys.sym_size(1)) {
      throw ArgumentError("exact_topk_attention: width",
                          "a number of keys in [1, S]", StrCat(width));
    }
    if (call.composes()) return ComposedTopkIndices(call, width);
    KernelTensors k = MakeKernelTensors(call);
    k.inputs.values = k.inputs.keys;
    const TensorView& q = k.inputs.queries;
    const at::Tensor indices = EmptyDense(
        {q.size[0], q.size[2], q.size[1], width.expect_int()}, at::kLong);
    TorchExecutor executor;
    const Workspace workspace(
        BlockedAttentionTopkBytes(k.inputs, indices.size(3), executor.width()));
    BlockedAttentionTopk(k.options, k.inputs, indices.size(3),
                         indices.data_ptr<int64_t>(), executor,
                         workspace.data());
    return indices;
  });
}

at::Tensor TopkMeta(const SoftmaxCall& call, const c10::SymInt& width) {
  const at::Tensor& q = call.queries;
  return at::empty_symint({q.sym_size(0), q.sym_size(2), q.sym_size(1), width},
                          q.options().dtype(at::kLong));
}

TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("softmax_attention", TORCH_FN(FlatForward<&ForwardCpu>));
  m.impl("softmax_attention_backward", TORCH_FN(FlatBackward<&BackwardCpu>));
  m.impl("exact_topk_indices", TORCH_FN(FlatTopk<&TopkCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("softmax_attention", TORCH_FN(FlatForward<&ForwardMeta>));
  m.impl("softmax_attention_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
  m.impl("exact_topk_indices", TORCH_FN(FlatTopk<&TopkMeta>));
}
}  // namespace
}  // namespace softmax_attention

}  // namespace tarn::ops
