// torch.ops.tarn.token_shift: each row mixed with the one before it
// (kernels/token_shift).
#include "kernels/token_shift/token_shift.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/sequences.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/rows/row_ops.h"
#include "torch_ops/rows/rows.h"

namespace tarn::ops {
namespace token_shift {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
// Gradients of x, before and weight; [0] for what is absent.
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Signature = at::Tensor(const at::Tensor&, const OptionalTensor&,
                             const OptionalTensor&, const OptionalTensor&);
using BackwardSignature = Gradients(const at::Tensor&, const at::Tensor&,
                                    const OptionalTensor&,
                                    const OptionalTensor&,
                                    const OptionalTensor&);

struct Call {
  at::Tensor x;
  OptionalTensor before, weight, cu_seqlens;
};

void Check(const Call& in) {
  const Wants wants("token_shift", in.x);
  wants.Floating("x", in.x);
  if (in.x.dim() != 3) {
    throw ShapeError("token_shift: x", "[batch, seq_len, width]",
                     SizesText(in.x.sym_sizes()));
  }
  const c10::SymInt sequences =
      wants.Sequences({}, in.cu_seqlens, in.x.sym_size(0));
  CheckSequences("token_shift", {}, in.cu_seqlens, in.x.sym_size(1));
  const c10::SymInt width = in.x.sym_size(2);
  if (in.before.has_value()) {
    wants.Floating("before", *in.before);
    wants.Device("before", *in.before);
    wants.Sizes("before", *in.before, {sequences, width});
  }
  if (in.weight.has_value()) {
    wants.Floating("weight", *in.weight);
    wants.Device("weight", *in.weight);
    wants.Sizes("weight", *in.weight, {width});
  }
}

bool Serves(const Call& in) {
  return IsKernelType(in.x) && OnKernelDevice(in.x, in.before, in.weight);
}

// The row before each, in the compute type.
at::Tensor RowsBefore(const Call& in, const at::Tensor& x) {
  const at::Tensor none =
      at::zeros_symint({x.sym_size(0), 1, x.sym_size(2)}, x.options());
  const auto given = [&] {  // rounded to the dtype of x first
    return in.before->to(in.x.scalar_type()).to(x.scalar_type());
  };
  if (!in.cu_seqlens.has_value()) {
    const at::Tensor first =
        in.before.has_value() ? given().unsqueeze(1) : none;
    return at::cat({first, x}, 1).narrow_symint(1, 0, x.sym_size(1));
  }
  const at::Tensor earlier =
      at::cat({none, x}, 1).narrow_symint(1, 0, x.sym_size(1));
  const TokenSequences where = SequencesOf(in.x, {}, in.cu_seqlens);
  const at::Tensor of = where.of_token;
  // Without a sequence there is no token, and nothing to index.
  const at::Tensor starts =
      (where.first.index_select(0, of) == Range(x.sym_size(1), of))
          .view_symint({1, x.sym_size(1), 1});
  if (!in.before.has_value()) {
    return at::where(starts, Zero(x), earlier);
  }
  return at::where(starts, given().index_select(0, of).unsqueeze(0), earlier);
}

at::Tensor Composed(const Call& in) {
  const at::Tensor x = Wide(in.x);
  at::Tensor y = RowsBefore(in, x) - x;
  if (in.weight.has_value()) y = x + in.weight->to(x.scalar_type()) * y;
  return y.to(in.x.scalar_type()).contiguous();
}

// A call and the tensors that its pointers reach into.
struct Held {
  at::Tensor x, before;
  OptionalTensor weight, cu_seqlens;
  TokenShiftCall call;

  explicit Held(const Call& in)
      : x(in.x), weight(in.weight), cu_seqlens(in.cu_seqlens) {
    call.dtype = KernelType(x);
    call.sequences = x.size(0);
    call.seq_len = x.size(1);
    call.width = x.size(2);
    if (cu_seqlens.has_value()) {
      call.sequences = cu_seqlens->size(0) - 1;
      call.bounds = DenseLongs(cu_seqlens);
    }
    call.stride = RowStride(x);
    call.x = x.const_data_ptr();
    call.weight = DenseFloats(weight);
    if (in.before.has_value()) {
      before = in.before->to(x.scalar_type()).contiguous();
      call.before = before.const_data_ptr();
    }
  }
};

at::Tensor ForwardCpu(const Call& in) {
  if (!Serves(in)) return Composed(in);
  const Held held(in);
  const at::Tensor y = EmptyDense(in.x.sizes(), in.x.scalar_type());
  TorchExecutor executor(WorkersFor(in.x.numel()));
  TokenShiftForward(held.call, y.data_ptr(), executor);
  return y;
}

Gradients BackwardCpu(const at::Tensor& grad_y, const Call& in) {
  const Held held(in);
  const auto none = [] { return at::empty({0}, at::kFloat); };
  const at::Tensor flow = grad_y.to(in.x.scalar_type()).contiguous();
  const at::Tensor x = EmptyDense(in.x.sizes(), in.x.scalar_type());
  TokenShiftGradients g;
  g.grad_y = flow.const_data_ptr();
  g.grad_x = x.data_ptr();
  at::Tensor before = none(), weight = none();
  if (in.before.has_value()) {
    before = EmptyDense(in.before->sizes(), in.x.scalar_type());
    g.grad_before = before.data_ptr();
  }
  if (in.weight.has_value()) {
    weight = EmptyDense(in.weight->sizes());
    g.grad_weight = weight.data_ptr<float>();
  }
  TorchExecutor executor(WorkersFor(in.x.numel()));
  const Workspace workspace(
      TokenShiftGradientBytes(held.call, in.weight.has_value()));
  TokenShiftBackward(held.call, g, executor, workspace.data());
  if (in.before.has_value()) before = before.to(in.before->scalar_type());
  if (in.weight.has_value()) weight = weight.to(in.weight->scalar_type());
  return {x, before, weight};
}

Gradients BackwardMeta(const at::Tensor&, const Call& in) {
  const auto like = [&](const OptionalTensor& x) {
    return x.has_value() ? at::empty_symint(x->sym_sizes(), x->options())
                         : at::empty({0}, in.x.options().dtype(at::kFloat));
  };
  return {like(in.x), like(in.before), like(in.weight)};
}

at::Tensor Dispatch(const Call& in) {
  static const auto op = FindOp<Signature>("tarn::token_shift");
  return op.call(in.x, in.before, in.weight, in.cu_seqlens);
}

struct ShiftFunction : public torch::autograd::Function<ShiftFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const OptionalTensor& before,
                            const OptionalTensor& weight,
                            const OptionalTensor& cu_seqlens) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward(
        {x, UndefinedOr(before), UndefinedOr(weight), UndefinedOr(cu_seqlens)});
    return Dispatch({x, before, weight, cu_seqlens});
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const OptionalTensor cu_seqlens = NoneOr(saved[3]);
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found = ComposedGradients(
          {saved[0], saved[1], saved[2]}, grads, [&](const variable_list& x) {
            return variable_list{
                Composed({x[0], NoneOr(x[1]), NoneOr(x[2]), cu_seqlens})};
          });
      found.resize(4);
      return found;
    }
    static const auto op =
        FindGradientOp<BackwardSignature>("tarn::token_shift_backward");
    const auto [x, before, weight] = op.call(
        grads[0], saved[0], NoneOr(saved[1]), NoneOr(saved[2]), cu_seqlens);
    return {x, saved[1].defined() ? before : at::Tensor(),
            saved[2].defined() ? weight : at::Tensor(), at::Tensor()};
  }
};

at::Tensor ForwardAutograd(const Call& in) {
  if (!Serves(in)) return Composed(in);
  if (!WantsGradient(in.x, in.before, in.weight)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  return ShiftFunction::apply(in.x, in.before, in.weight, in.cu_seqlens);
}

template <at::Tensor (*kForward)(const Call&)>
at::Tensor Flat(const at::Tensor& x, const OptionalTensor& before,
                const OptionalTensor& weight,
                const OptionalTensor& cu_seqlens) {
  return WithTorchErrors([&] {
    const Call in = {x, before, weight, cu_seqlens};
    Check(in);
    return kForward(in);
  });
}

template <Gradients (*kBackward)(const at::Tensor&, const Call&)>
Gradients FlatBackward(const at::Tensor& grad_y, const at::Tensor& x,
                       const OptionalTensor& before,
                       const OptionalTensor& weight,
                       const OptionalTensor& cu_seqlens) {
  return WithTorchErrors([&] {
    return kBackward(grad_y, {x, before, weight, cu_seqlens});
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "token_shift(Tensor x, Tensor? before=None, Tensor? weight=None, "
      "Tensor? cu_seqlens=None) -> Tensor");
  m.def(
      "token_shift_backward(Tensor grad_y, Tensor x, Tensor? before, "
      "Tensor? weight, Tensor? cu_seqlens) -> (Tensor grad_x, "
      "Tensor grad_before, Tensor grad_weight)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("token_shift", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("token_shift_backward", TORCH_FN(FlatBackward<&BackwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("token_shift", TORCH_FN(Flat<&Composed>));
  m.impl("token_shift_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("token_shift", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("token_shift", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("token_shift", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("token_shift_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace token_shift

at::Tensor TokenShift(const at::Tensor& x, const OptionalTensor& before,
                      const OptionalTensor& weight,
                      const OptionalTensor& cu_seqlens) {
  return token_shift::Dispatch({x, before, weight, cu_seqlens});
}

}  // namespace tarn::ops
