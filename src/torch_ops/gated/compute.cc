// The kernels of the gated recurrences on checked calls.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include "kernels/decay/decay_attention.h"
#include "kernels/delta/delta_attention.h"
#include "kernels/dplr/dplr_attention.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/cuda/kernels.h"
#include "torch_ops/gated/call.h"

namespace tarn::ops {
namespace {

float* Out(const at::Tensor& x) {
  return x.numel() == 0 ? nullptr : x.data_ptr<float>();
}

// The functions of one operator.
struct Kernels {
  size_t (*bytes)(const RecurrentInputs&, int);
  decltype(&DecayAttentionForward) forward;
  decltype(&DecayAttentionGradientBytes) gradient_bytes;
  decltype(&DecayAttentionBackward) backward;
  decltype(&DecayAttentionStep) step;
};

Kernels KernelsOf(GatedKind kind) {
  switch (kind) {
    case GatedKind::kDelta:
      return {&DeltaAttentionWorkspaceBytes, &DeltaAttentionForward,
              &DeltaAttentionGradientBytes, &DeltaAttentionBackward,
              &DeltaAttentionStep};
    case GatedKind::kDplr:
      return {&DplrAttentionWorkspaceBytes, &DplrAttentionForward,
              &DplrAttentionGradientBytes, &DplrAttentionBackward,
              &DplrAttentionStep};
    case GatedKind::kDecay:
      break;
  }
  return {&DecayAttentionWorkspaceBytes, &DecayAttentionForward,
          &DecayAttentionGradientBytes, &DecayAttentionBackward,
          &DecayAttentionStep};
}

// A call and the tensors that its pointers reach into.
struct Held {
  GatedCall call;
  at::Tensor gates, betas;  // with four axes
  RecurrentOptions options;
  RecurrentInputs inputs;

  explicit Held(const GatedCall& given) : call(given) {
    options.scale = static_cast<float>(call.scale);
    inputs.on_device = call.queries.is_cuda();
    inputs.queries = ViewOf("queries", call.queries);
    inputs.keys = ViewOf("keys", call.keys);
    inputs.values = ViewOf("values", call.values);
    if (call.gates.has_value()) {
      if (call.gates->dim() == 1) {
        inputs.head_gates = DenseFloats(call.gates);
      } else {
        gates = FourAxes(*call.gates);
        inputs.gates = ViewOf("gates", gates);
      }
    }
    if (call.delta()) {
      betas = FourAxes(*call.betas);
      inputs.betas = ViewOf("betas", betas);
    }
    if (call.dplr()) {
      inputs.reads = ViewOf("reads", *call.reads);
      inputs.writes = ViewOf("writes", *call.writes);
    }
    inputs.bonus = DenseFloats(call.bonus);
    inputs.lengths = DenseLongs(call.lengths);
    inputs.cu_seqlens = DenseLongs(call.cu_seqlens);
    if (call.cu_seqlens.has_value()) {
      inputs.sequences = call.cu_seqlens->size(0) - 1;
    }
    inputs.initial_state = DenseFloats(call.initial_state);
  }

  at::Tensor Empty(at::IntArrayRef sizes,
                   at::ScalarType dtype = at::kFloat) const {
    return EmptyOn(call.queries, sizes, dtype);
  }

  // float64 gates of float32 queries are no more exact than the state.
  static at::Tensor FourAxes(const at::Tensor& x) {
    const at::Tensor narrow =
        x.scalar_type() == at::kDouble ? x.to(at::kFloat) : x;
    return narrow.dim() == 4 ? narrow : narrow.unsqueeze(-1);
  }

  std::vector<int64_t> StateSizes(int64_t states) const {
    return {states, inputs.values.size[2], inputs.keys.size[3],
            inputs.values.size[3]};
  }
};

// Workers for so many state entries read and written; below a quarter of a
// million, some 50 us of one thread, waking another costs more than it saves,
// above all where other processes hold a core.
int WorkersFor(const RecurrentInputs& in) {
  constexpr int64_t kLeastEntries = 1 << 18;
  const int64_t entries = in.queries.size[0] * in.queries.size[1] *
                          in.values.size[2] * in.keys.size[3] *
                          in.values.size[3];
  return entries < kLeastEntries ? 1 : std::numeric_limits<int>::max();
}

// Whether the call is one token after a state, as in decoding: a chunk would be
// filled up with pads.
bool IsStep(const GatedCall& call, bool checkpoints) {
  return call.return_state && !checkpoints && call.queries.sym_size(1) == 1 &&
         call.initial_state.has_value() && !call.lengths.has_value() &&
         !call.cu_seqlens.has_value();
}

// The three calls of kernels, on the device of the call.
void Step(const Held& held, const RecurrentInputs& token,
          const RecurrentState& state, const TensorView& out) {
  if (token.on_device) {
    return CudaGatedStep(held.call.kind, held.call.queries, held.options, token,
                         state, out);
  }
  TorchExecutor executor(WorkersFor(token));
  KernelsOf(held.call.kind).step(held.options, token, state, out, executor);
}

void Forward(const Held& held, const RecurrentOutputs& outputs) {
  const RecurrentInputs& in = held.inputs;
  if (in.on_device) {
    return CudaGatedForward(held.call.kind, held.call.queries, held.options, in,
                            outputs);
  }
  TorchExecutor executor(WorkersFor(in));
  const Kernels kernels = KernelsOf(held.call.kind);
  const Workspace workspace(kernels.bytes(in, executor.width()));
  kernels.forward(held.options, in, outputs, executor, workspace.data());
}

void Backward(const Held& held, const RecurrentGradients& gradients) {
  const RecurrentInputs& in = held.inputs;
  if (in.on_device) {
    return CudaGatedBackward(held.call.kind, held.call.queries, held.options,
                             in, gradients);
  }
  TorchExecutor executor(WorkersFor(in));
  const Kernels kernels = KernelsOf(held.call.kind);
  const Workspace workspace(kernels.gradient_bytes(
      in, executor.width(), gradients.checkpoints != nullptr));
  kernels.backward(held.options, in, gradients, executor, workspace.data());
}

}  // namespace

GatedResults ComputeGated(const GatedCall& call, bool checkpoints) {
  Held held(call);
  const RecurrentInputs& in = held.inputs;
  at::Tensor out = held.Empty(call.values.sizes(), call.values.scalar_type());
  const auto states = [&](bool wanted, int64_t count) {
    return held.Empty(wanted ? held.StateSizes(count)
                             : std::vector<int64_t>{0});
  };
  const at::Tensor state = states(call.return_state, in.SequenceCount());
  const at::Tensor kept = states(checkpoints, RecurrentCheckpoints(in));
  const TensorView out_view = ViewOf("out", out);
  if (IsStep(call, checkpoints)) {
    RecurrentInputs token = in;
    token.initial_state = nullptr;
    Step(held, token, {.state = in.initial_state, .next = Out(state)},
         out_view);
  } else {
    Forward(held, {out_view, Out(state), Out(kept)});
  }
  return {out, state, kept};
}

at::Tensor ComputeGatedSteps(const GatedCall& call, at::Tensor& states,
                             OptionalTensor slots) {
  const Held held(call);
  at::Tensor out = held.Empty(call.values.sizes(), call.values.scalar_type());
  const int64_t* of_rows = DenseLongs(slots);
  float* pool = Out(states);
  Step(held, held.inputs,
       {.state = pool,
        .next = pool,
        .read_slots = of_rows,
        .write_slots = of_rows},
       ViewOf("out", out));
  return out;
}

GatedGradients ComputeGatedGradients(const GatedCall& call,
                                     const at::Tensor& checkpoints,
                                     const at::Tensor& grad_out,
                                     const at::Tensor& grad_state) {
  Held held(call);
  const RecurrentInputs& in = held.inputs;
  const auto dense = [&held](const at::Tensor& x) {
    return held.Empty(x.sizes(), x.scalar_type());
  };
  at::Tensor queries = dense(call.queries), keys = dense(call.keys);
  at::Tensor values = dense(call.values);
  const at::Tensor none = held.Empty({0});
  at::Tensor gates = none, extra = none, initial = none;
  at::Tensor wide_out =
      (grad_out.defined() ? grad_out : at::zeros_like(call.values))
          .to(call.values.scalar_type());
  OptionalTensor wide_state = NoneOr(grad_state);
  RecurrentGradients g;
  g.grad_out = ViewOf("grad_out", wide_out);
  g.grad_final_state = DenseFloats(wide_state);
  g.checkpoints = Out(checkpoints);
  g.grad_queries = ViewOf("grad_queries", queries);
  g.grad_keys = ViewOf("grad_keys", keys);
  g.grad_values = ViewOf("grad_values", values);
  // Asked of the call: the pointer of an empty tensor is null, as if none were
  // given.
  if (call.gates.has_value() && call.gates->dim() == 1) {
    gates = held.Empty({in.values.size[2]});
    g.grad_head_gates = Out(gates);
  } else if (held.gates.defined()) {
    gates = dense(held.gates);
    g.grad_gates = ViewOf("grad_gates", gates);
  }
  if (call.delta()) {
    extra = dense(held.betas);
    g.grad_betas = ViewOf("grad_betas", extra);
  } else if (call.bonus.has_value()) {
    extra = held.Empty({in.values.size[2], in.keys.size[3]});
    g.grad_bonus = Out(extra);
  }
  if (call.initial_state.has_value()) {
    initial = held.Empty(held.StateSizes(in.SequenceCount()));
    g.grad_initial_state = Out(initial);
  }
  at::Tensor reads = none, writes = none;
  if (call.dplr()) {
    reads = dense(*call.reads);
    writes = dense(*call.writes);
    g.grad_reads = ViewOf("grad_reads", reads);
    g.grad_writes = ViewOf("grad_writes", writes);
  }
  Backward(held, g);
  const auto as = [](const at::Tensor& gradient, const OptionalTensor& like) {
    return like.has_value()
               ? gradient.view(like->sizes()).to(like->scalar_type())
               : gradient;
  };
  return {
      queries, keys,  values, as(gates, call.gates), as(extra, call.extra()),
      initial, reads, writes};
}

}  // namespace tarn::ops
