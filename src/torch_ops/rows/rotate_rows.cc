// torch.ops.tarn.rotate_rows: rotary positions by tables (kernels/rotary). Its
// gradient is the inverse rotation; tables that are learned are composed.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/rotary/rotary_rows.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/rows/rows.h"

namespace tarn::ops {
namespace rotate_rows {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Signature = at::Tensor(const at::Tensor&, const at::Tensor&,
                             const at::Tensor&, bool, bool);

struct Call {
  at::Tensor x;         // [B, T, H, W]
  at::Tensor cos, sin;  // [T, R] or [B, T, R]
  bool interleaved = false, inverse = false;
};

void Check(const Call& in) {
  const Wants want("rotate_rows", in.x);
  want.Floating("x", in.x);
  if (in.x.dim() != 4) {
    throw ShapeError(want.Argument("x"), "[batch, seq_len, heads, width]",
                     SizesText(in.x.sym_sizes()));
  }
  want.Device("cos", in.cos);
  want.Floating("cos", in.cos);
  if (in.cos.dim() < 2 || in.cos.dim() > 3 ||
      in.cos.sym_size(-1) * 2 > in.x.sym_size(3)) {
    throw ShapeError(want.Argument("cos"),
                     "[seq_len, half the width at most], or one a batch",
                     SizesText(in.cos.sym_sizes()));
  }
  std::vector<c10::SymInt> sizes = {in.x.sym_size(1), in.cos.sym_size(-1)};
  if (in.cos.dim() == 3) sizes.insert(sizes.begin(), in.x.sym_size(0));
  want.Sizes("cos", in.cos, sizes);
  want.Device("sin", in.sin);
  want.Floating("sin", in.sin);
  want.Sizes("sin", in.sin, sizes);
}

bool Serves(const Call& in) {
  return IsKernelType(in.x) && OnKernelDevice(in.x, in.cos, in.sin) &&
         !WantsGradient(in.cos, in.sin);
}

at::Tensor Composed(const Call& in) {
  const at::ScalarType type = ComputeType(in.x);
  const c10::SymInt width = in.cos.sym_size(-1) * 2;
  const at::Tensor cos = in.cos.to(type).unsqueeze(-2);
  at::Tensor sin = in.sin.to(type).unsqueeze(-2);
  if (in.inverse) sin = -sin;
  const at::Tensor turned = in.x.narrow_symint(-1, 0, width).to(type);
  at::Tensor a, b, y;
  if (in.interleaved) {
    a = turned.slice(-1, 0, std::nullopt, 2);
    b = turned.slice(-1, 1, std::nullopt, 2);
  } else {
    a = turned.narrow_symint(-1, 0, in.cos.sym_size(-1));
    b = turned.narrow_symint(-1, in.cos.sym_size(-1), in.cos.sym_size(-1));
  }
  const at::Tensor first = a * cos - b * sin, second = b * cos + a * sin;
  y = in.interleaved ? at::stack({first, second}, -1).flatten(-2)
                     : at::cat({first, second}, -1);
  const at::Tensor rest =
      in.x.narrow_symint(-1, width, in.x.sym_size(3) - width);
  return at::cat({y.to(in.x.scalar_type()), rest}, -1).contiguous();
}

at::Tensor ForwardCpu(const Call& in) {
  Check(in);
  if (!IsKernelType(in.x) || !OnKernelDevice(in.x)) return Composed(in);
  at::Tensor x = in.x;
  OptionalTensor cos = in.cos, sin = in.sin;
  at::Tensor out = EmptyDense(x.sizes(), x.scalar_type());
  RotaryRowsCall call;
  call.x = ViewOf("x", x);
  call.cos = DenseFloats(cos);
  call.sin = DenseFloats(sin);
  call.pairs = in.cos.size(-1);
  call.by_batch = in.cos.dim() == 3;
  call.interleaved = in.interleaved;
  call.inverse = in.inverse;
  TorchExecutor executor(WorkersFor(x.numel()));
  RotateRows(call, ViewOf("out", out), executor);
  return out;
}

at::Tensor ForwardComposed(const Call& in) {
  Check(in);
  return Composed(in);
}

at::Tensor Dispatch(const Call& in) {
  static const auto op = FindOp<Signature>("tarn::rotate_rows");
  return op.call(in.x, in.cos, in.sin, in.interleaved, in.inverse);
}

struct RotateFunction : public torch::autograd::Function<RotateFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor&,
                            const Call& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({in.cos, in.sin});
    ctx->saved_data["interleaved"] = in.interleaved;
    ctx->saved_data["inverse"] = in.inverse;
    return Dispatch(in);
  }

  // Differentiable as it is: the call goes through autograd again.
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    return {Dispatch({grads[0], saved[0], saved[1],
                      ctx->saved_data["interleaved"].toBool(),
                      !ctx->saved_data["inverse"].toBool()}),
            at::Tensor()};
  }
};

at::Tensor ForwardAutograd(const Call& in) {
  if (!Serves(in)) return ForwardComposed(in);
  Check(in);
  if (!WantsGradient(in.x)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  return RotateFunction::apply(in.x, in);
}

template <at::Tensor (*kForward)(const Call&)>
at::Tensor Flat(const at::Tensor& x, const at::Tensor& cos,
                const at::Tensor& sin, bool interleaved, bool inverse) {
  return WithTorchErrors([&] {
    return kForward({x, cos, sin, interleaved, inverse});
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "rotate_rows(Tensor x, Tensor cos, Tensor sin, bool interleaved=False, "
      "bool inverse=False) -> Tensor");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("rotate_rows", TORCH_FN(Flat<&ForwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("rotate_rows", TORCH_FN(Flat<&ForwardComposed>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("rotate_rows", TORCH_FN(Flat<&ForwardComposed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("rotate_rows", TORCH_FN(Flat<&ForwardComposed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("rotate_rows", TORCH_FN(Flat<&ForwardAutograd>));
}

}  // namespace
}  // namespace rotate_rows
}  // namespace tarn::ops
