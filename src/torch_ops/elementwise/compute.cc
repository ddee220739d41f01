// The kernel of the elementwise recurrence on checked calls of the CPU.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "kernels/elementwise_recurrence/elementwise_recurrence.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/elementwise/elementwise.h"

namespace tarn::ops {
namespace elementwise {
namespace {

at::Tensor States(bool wanted, int64_t count, const at::Tensor& inputs) {
  return wanted ? EmptyDense({count, inputs.size(2)})
                : at::empty({0}, at::kFloat);
}

float* NumbersOf(const at::Tensor& x) {
  return x.numel() == 0 ? nullptr : x.data_ptr<float>();
}

// The kernel's view [B, T, 1, D].
TensorView Rows(const char* name, const at::Tensor& x, at::Tensor& held) {
  held = x.unsqueeze(2);
  return ViewOf(name, held);
}

// A call and the tensors that its pointers reach into.
struct Held {
  ElementwiseCall call;
  at::Tensor rows, gates;
  ElementwiseRecurrenceInputs inputs;

  explicit Held(const ElementwiseCall& given) : call(given) {
    inputs.inputs = Rows("inputs", call.inputs, rows);
    // The kernel takes gates in the dtype of the inputs or in float32.
    inputs.gates = Rows("gates",
                        call.gates.scalar_type() == call.inputs.scalar_type()
                            ? call.gates
                            : call.gates.to(at::kFloat),
                        gates);
    inputs.lengths = DenseLongs(call.lengths);
    inputs.cu_seqlens = DenseLongs(call.cu_seqlens);
    if (call.cu_seqlens.has_value()) {
      inputs.sequences = call.cu_seqlens->size(0) - 1;
    }
    inputs.initial_state = DenseFloats(call.initial_state);
  }
};

}  // namespace
}  // namespace elementwise

ElementwiseResults ComputeElementwise(const ElementwiseCall& call,
                                      bool checkpoints) {
  using namespace elementwise;
  const Held held(call);
  const at::Tensor out =
      EmptyDense(call.inputs.sizes(), call.inputs.scalar_type());
  const at::Tensor state =
      States(call.return_state, held.inputs.SequenceCount(), call.inputs);
  const at::Tensor kept =
      States(checkpoints, ElementwiseCheckpoints(held.inputs), call.inputs);
  at::Tensor rows;
  TorchExecutor executor(WorkersFor(call.inputs.numel()));
  ElementwiseRecurrenceForward(
      held.inputs, {Rows("out", out, rows), NumbersOf(state), NumbersOf(kept)},
      executor);
  return {out, state, kept};
}

ElementwiseGradients ComputeElementwiseGradients(const ElementwiseCall& call,
                                                 const at::Tensor& checkpoints,
                                                 const at::Tensor& grad_out,
                                                 const at::Tensor& grad_state) {
  using namespace elementwise;
  const Held held(call);
  const at::Tensor inputs =
      EmptyDense(call.inputs.sizes(), call.inputs.scalar_type());
  const at::Tensor gates =
      EmptyDense(call.gates.sizes(), held.gates.scalar_type());
  const at::Tensor initial = States(call.initial_state.has_value(),
                                    held.inputs.SequenceCount(), call.inputs);
  const at::Tensor given =
      (grad_out.defined() ? grad_out : at::zeros_like(call.inputs))
          .to(call.inputs.scalar_type());
  OptionalTensor state = NoneOr(grad_state);
  at::Tensor rows[3];
  ElementwiseRecurrenceGradients g;
  g.checkpoints = NumbersOf(checkpoints);
  g.grad_out = Rows("grad_out", given, rows[0]);
  g.grad_final_state = DenseFloats(state);
  g.grad_inputs = Rows("grad_inputs", inputs, rows[1]);
  g.grad_gates = Rows("grad_gates", gates, rows[2]);
  g.grad_initial_state = NumbersOf(initial);
  TorchExecutor executor(WorkersFor(call.inputs.numel()));
  ElementwiseRecurrenceBackward(held.inputs, g, executor);
  return {inputs, gates.to(call.gates.scalar_type()), initial};
}

}  // namespace tarn::ops
