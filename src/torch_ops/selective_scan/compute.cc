// The kernel of the selective scan on checked calls of the CPU.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "kernels/selective_scan/selective_scan.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/selective_scan/selective_scan.h"

namespace tarn::ops {
namespace selective_scan {
namespace {

at::Tensor States(bool wanted, std::vector<int64_t> sizes) {
  return wanted ? EmptyDense(sizes) : at::empty({0}, at::kFloat);
}

float* NumbersOf(const at::Tensor& x) {
  return x.numel() == 0 ? nullptr : x.data_ptr<float>();
}

// The kernel's view [B, T, 1, width].
TensorView Rows(const char* name, const at::Tensor& x, at::Tensor& held) {
  held = x.unsqueeze(2);
  return ViewOf(name, held);
}

// A call and the tensors that its pointers reach into.
struct Held {
  ScanCall call;
  at::Tensor rows[4];
  OptionalTensor rates;
  SelectiveScanInputs inputs;

  explicit Held(const ScanCall& given) : call(given), rates(given.rates) {
    const at::ScalarType type = call.inputs.scalar_type();
    inputs.inputs = Rows("inputs", call.inputs, rows[0]);
    // The kernel takes steps in the dtype of the inputs or in float32.
    inputs.steps =
        Rows("steps",
             call.steps.scalar_type() == type ? call.steps
                                              : call.steps.to(at::kFloat),
             rows[1]);
    inputs.keys = Rows("keys", call.keys.to(type), rows[2]);
    inputs.queries = Rows("queries", call.queries.to(type), rows[3]);
    rates = rates->to(at::kFloat);
    inputs.rates = DenseFloats(rates);
    if (call.skip.has_value()) call.skip = call.skip->to(at::kFloat);
    inputs.skip = DenseFloats(call.skip);
    inputs.lengths = DenseLongs(call.lengths);
    inputs.cu_seqlens = DenseLongs(call.cu_seqlens);
    if (call.cu_seqlens.has_value()) {
      inputs.sequences = call.cu_seqlens->size(0) - 1;
    }
    inputs.initial_state = DenseFloats(call.initial_state);
  }
  std::vector<int64_t> StateSizes() const {
    return {inputs.SequenceCount(), inputs.channels(), inputs.states()};
  }
  int Workers() const {
    return WorkersFor(call.inputs.numel() * inputs.states());
  }
};

}  // namespace
}  // namespace selective_scan

ScanResults ComputeScan(const ScanCall& call, bool checkpoints) {
  using namespace selective_scan;
  const Held held(call);
  const SelectiveScanInputs& in = held.inputs;
  const at::Tensor out =
      EmptyDense(call.inputs.sizes(), call.inputs.scalar_type());
  const at::Tensor state = States(call.return_state, held.StateSizes());
  const at::Tensor kept = States(
      checkpoints, {SelectiveScanCheckpoints(in), in.states(), in.channels()});
  at::Tensor rows;
  TorchExecutor executor(held.Workers());
  SelectiveScanForward(
      in, {Rows("out", out, rows), NumbersOf(state), NumbersOf(kept)},
      executor);
  return {out, state, kept};
}

ScanGradients ComputeScanGradients(const ScanCall& call,
                                   const at::Tensor& checkpoints,
                                   const at::Tensor& grad_out,
                                   const at::Tensor& grad_state) {
  using namespace selective_scan;
  const Held held(call);
  const SelectiveScanInputs& in = held.inputs;
  const at::ScalarType type = call.inputs.scalar_type();
  const at::Tensor inputs = EmptyDense(call.inputs.sizes(), type);
  const at::Tensor steps =
      EmptyDense(call.steps.sizes(), held.rows[1].scalar_type());
  const at::Tensor keys = EmptyDense(call.keys.sizes(), type);
  const at::Tensor queries = EmptyDense(call.keys.sizes(), type);
  const at::Tensor rates = EmptyDense(call.rates.sizes());
  const at::Tensor skip = States(call.skip.has_value(), {in.channels()});
  const at::Tensor initial =
      States(call.initial_state.has_value(), held.StateSizes());
  const at::Tensor given =
      (grad_out.defined() ? grad_out : at::zeros_like(call.inputs)).to(type);
  OptionalTensor state = NoneOr(grad_state);
  TorchExecutor executor(held.Workers());
  const at::Tensor scratch =
      EmptyDense({SelectiveScanScratch(in, executor.width())});
  at::Tensor rows[5];
  SelectiveScanGradients g;
  g.checkpoints = NumbersOf(checkpoints);
  g.grad_out = Rows("grad_out", given, rows[0]);
  g.grad_final_state = DenseFloats(state);
  g.grad_inputs = Rows("grad_inputs", inputs, rows[1]);
  g.grad_steps = Rows("grad_steps", steps, rows[2]);
  g.grad_keys = Rows("grad_keys", keys, rows[3]);
  g.grad_queries = Rows("grad_queries", queries, rows[4]);
  g.grad_rates = NumbersOf(rates);
  g.grad_skip = NumbersOf(skip);
  g.grad_initial_state = NumbersOf(initial);
  g.scratch = NumbersOf(scratch);
  SelectiveScanBackward(in, g, executor);
  return {inputs,
          steps.to(call.steps.scalar_type()),
          rates.to(call.rates.scalar_type()),
          keys.to(call.keys.scalar_type()),
          queries.to(call.queries.scalar_type()),
          call.skip.has_value() ? skip.to(call.skip->scalar_type()) : skip,
          initial};
}

}  // namespace tarn::ops
