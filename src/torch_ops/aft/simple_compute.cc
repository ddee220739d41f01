#include "torch_ops/aft/simple_compute.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "kernels/aft_simple/aft_simple.h"
#include "torch_ops/aft/scan.h"
#include "torch_ops/common/call.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/sparse/call.h"

namespace tarn::ops {
namespace {

constexpr int64_t kSlice = 64;  // channels of a task of the scan

// A call in its compute type, with its own state to be advanced.
struct Held {
  at::Tensor q, k, v, kept, m, a, b;

  explicit Held(const AftSimpleCall& in) {
    const at::ScalarType type = ComputeType(in.queries);
    q = in.queries.to(type);
    k = in.keys.to(type);
    v = in.values.to(type);
    kept = KeptPositions(in.key_mask, in.key_lengths, k.size(1));
    if (kept.defined()) kept = kept.contiguous();  // read by address
    const int64_t row[] = {q.size(0), q.size(2), q.size(3)};
    if (in.m.has_value()) {
      m = in.m->clone(at::MemoryFormat::Contiguous);
      a = in.a->clone(at::MemoryFormat::Contiguous);
      b = in.b->clone(at::MemoryFormat::Contiguous);
    } else {
      m = at::full(row, -std::numeric_limits<double>::infinity(), q.options());
      a = at::zeros(row, q.options());
      b = at::zeros(row, q.options());
    }
  }
};

// ---- float32: the kernel, on strided rows.

AftSimpleInputs KernelInputs(const AftSimpleCall& in, Held& held) {
  AftSimpleInputs inputs;
  inputs.queries = ViewOf("queries", held.q);
  inputs.keys = ViewOf("keys", held.k);
  inputs.values = ViewOf("values", held.v);
  if (held.kept.defined()) inputs.kept = held.kept.const_data_ptr<bool>();
  inputs.causal = in.causal;
  if (in.causal) inputs.causal_offset = in.causal_offset.expect_int();
  return inputs;
}

AftSimpleState KernelState(const at::Tensor& m, const at::Tensor& a,
                           const at::Tensor& b) {
  return {m.data_ptr<float>(), a.data_ptr<float>(), b.data_ptr<float>()};
}

void KernelForward(const AftSimpleCall& in, Held& held, at::Tensor& out) {
  TorchExecutor executor;
  AftSimpleForward(KernelInputs(in, held), KernelState(held.m, held.a, held.b),
                   ViewOf("out", out), executor);
}

void KernelBackward(const AftSimpleCall& in, Held& held,
                    const AftSimpleResultGradients& grad,
                    AftSimpleGradientResults& results) {
  const auto data = [](const at::Tensor& x) {
    return x.defined() ? x.const_data_ptr<float>() : nullptr;
  };
  auto& [q, k, v, m, a, b] = results;
  const AftSimpleInputs inputs = KernelInputs(in, held);
  AftSimpleGradients g;
  at::Tensor grad_out = grad.out;
  if (grad_out.defined()) g.out = ViewOf("grad_out", grad_out);
  g.m = data(grad.m);
  g.a = data(grad.a);
  g.b = data(grad.b);
  g.queries = ViewOf("grad_queries", q);
  g.keys = ViewOf("grad_keys", k);
  g.values = ViewOf("grad_values", v);
  g.initial = KernelState(m, a, b);
  TorchExecutor executor;
  const at::Tensor scratch =
      EmptyDense({AftSimpleBackwardFloats(inputs, executor.width())});
  AftSimpleBackward(inputs, KernelState(held.m, held.a, held.b), g, executor,
                    scratch.data_ptr<float>());
}

// ---- float64: the scan, one task for each sequence and slice of channels.

// Views of dense operands, cut into tasks.
class Tasks {
 public:
  Tasks(const AftSimpleCall& in, Held& held)
      : held_(held),
        width_(held.q.size(2) * held.q.size(3)),
        slices_((width_ + kSlice - 1) / kSlice) {
    for (at::Tensor* x : {&held.q, &held.k, &held.v}) *x = x->contiguous();
    // How far beyond either end a query reads does not matter.
    reach_ = in.causal ? std::clamp<int64_t>(in.causal_offset.expect_int(),
                                             -held.q.size(1), held.k.size(1))
                       : held.k.size(1);
  }

  int64_t count() const { return held_.q.size(0) * slices_; }
  // Channels before those of a task's sequence in [B, H, V].
  int64_t At(int64_t task) const { return task / slices_ * width_; }

  AftColumns Columns(int64_t task) const {
    const int64_t slice = task % slices_, at = At(task);
    AftColumns in;
    in.queries = held_.q.size(1);
    in.keys = held_.k.size(1);
    in.width = width_;
    in.begin = slice * kSlice;
    in.end = std::min(width_, in.begin + kSlice);
    in.reach = reach_;
    in.q = held_.q.const_data_ptr<double>() + at * in.queries;
    in.k = held_.k.const_data_ptr<double>() + at * in.keys;
    in.v = held_.v.const_data_ptr<double>() + at * in.keys;
    if (held_.kept.defined()) {
      in.kept = held_.kept.const_data_ptr<bool>() + task / slices_ * in.keys;
    }
    return in;
  }

 private:
  const Held& held_;
  int64_t width_, slices_, reach_ = 0;
};

AftRows RowsAt(const at::Tensor& m, const at::Tensor& a, const at::Tensor& b,
               int64_t at) {
  return {m.data_ptr<double>() + at, a.data_ptr<double>() + at,
          b.data_ptr<double>() + at};
}

void ScanForward(const AftSimpleCall& in, Held& held, const at::Tensor& out) {
  const Tasks tasks(in, held);
  TorchExecutor executor;
  double* result = out.data_ptr<double>();
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    const AftColumns columns = tasks.Columns(task);
    const int64_t at = tasks.At(task);
    AftScan(columns, RowsAt(held.m, held.a, held.b, at),
            result + at * columns.queries);
  });
}

void ScanBackward(const AftSimpleCall& in, Held& held,
                  const AftSimpleResultGradients& grad,
                  const AftSimpleGradientResults& results) {
  const auto data = [](const at::Tensor& x, int64_t at) {
    return x.defined() ? x.const_data_ptr<double>() + at : nullptr;
  };
  const Tasks tasks(in, held);
  const auto& [q, k, v, m, a, b] = results;
  const at::Tensor m0 = held.m.clone(), a0 = held.a.clone(),
                   b0 = held.b.clone();
  TorchExecutor executor;
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    const AftColumns columns = tasks.Columns(task);
    const int64_t at = tasks.At(task);
    AftGradients g;
    g.grad_out = data(grad.out, at * columns.queries);
    g.grad_m = data(grad.m, at);
    g.grad_a = data(grad.a, at);
    g.grad_b = data(grad.b, at);
    g.q = q.data_ptr<double>() + at * columns.queries;
    g.k = k.data_ptr<double>() + at * columns.keys;
    g.v = v.data_ptr<double>() + at * columns.keys;
    g.initial = RowsAt(m, a, b, at);
    const AftRows state = RowsAt(held.m, held.a, held.b, at);
    AftScanBackward backward(columns, state, g);
    backward.Run(state);
    backward.FinishInitialState(RowsAt(m0, a0, b0, at));
  });
}

// A gradient in the compute type, dense, of the shape of its result.
at::Tensor Wide(const char* name, const at::Tensor& x, const at::Tensor& like) {
  if (!x.defined()) return x;
  if (x.sizes() != like.sizes()) {
    throw ShapeError(StrCat("aft_simple_backward: ", name),
                     ShapeText(like.sizes().vec()), ShapeText(x.sizes().vec()));
  }
  return x.to(like.scalar_type()).contiguous();
}

at::Tensor DenseLike(const at::Tensor& x) {
  return at::empty_like(x, at::MemoryFormat::Contiguous);
}

}  // namespace

AftSimpleResults ComputeAftSimple(const AftSimpleCall& in) {
  Held held(in);
  at::Tensor out = DenseLike(held.q);
  if (out.scalar_type() == at::kDouble) {
    ScanForward(in, held, out);
  } else {
    KernelForward(in, held, out);
  }
  return {out.to(in.queries.scalar_type()), held.m, held.a, held.b};
}

AftSimpleGradientResults ComputeAftSimpleGradients(
    const AftSimpleCall& in, const AftSimpleResultGradients& grad) {
  Held held(in);
  const AftSimpleResultGradients wide = {
      Wide("grad_out", grad.out, held.q), Wide("grad_m", grad.m, held.m),
      Wide("grad_a", grad.a, held.a), Wide("grad_b", grad.b, held.b)};
  AftSimpleGradientResults results = {DenseLike(held.q), DenseLike(held.k),
                                      DenseLike(held.v), DenseLike(held.m),
                                      DenseLike(held.a), DenseLike(held.b)};
  if (held.q.scalar_type() == at::kDouble) {
    ScanBackward(in, held, wide, results);
  } else {
    KernelBackward(in, held, wide, results);
  }
  const at::ScalarType dtype = in.queries.scalar_type();
  auto& [q, k, v, m, a, b] = results;
  return {q.to(dtype), k.to(dtype), v.to(dtype), m, a, b};
}

}  // namespace tarn::ops
