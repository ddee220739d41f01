// Gradient. With a_t = exp(g_t) and dh after the last token that of the final
// state, in reverse:
//   dh_t = dout_t + a_{t+1} dh_{t+1}
//   dx_t = dh_t,  dg_t = a_t dh_t h_{t-1},  dinitial = a_0 dh_0
// The states h_{t-1} of a group of tokens are made again from its checkpoint,
// in float32 whatever the dtype of the outputs, and are on the stack with the
// factors: an exponential is taken once a gate.
#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "kernels/elementwise_recurrence/channels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "kernels/elementwise_recurrence/elementwise_recurrence_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/elementwise_recurrence/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// States before each token of a group, and its factors.
template <int kVectors>
struct ElementwiseGroup {
  HWY_ALIGN float before[kElementwiseGroup][kVectors * kLanes];
  HWY_ALIGN float factor[kElementwiseGroup][kVectors * kLanes];
};

// Tokens [begin, end), a group or its part.
template <DType kType, DType kGates, int kVectors>
static HWY_INLINE void RebuildStates(
    const ElementwiseLanes<kType, kGates, kVectors>& at, int64_t begin,
    int64_t end, ElementwiseGroup<kVectors>& group) {
  const ElementwiseTask& task = at.task;
  VF state[kVectors];
  if (begin == 0) {
    at.LoadState(task.in->initial_state, task.sequence, state);
  } else {
    at.LoadState(task.gradient->checkpoints,
                 at.span.checkpoint + begin / kElementwiseGroup - 1, state);
  }
  for (int64_t t = begin; t < end; ++t) {
    const char* x = at.template At<kType>(task.in->inputs, t);
    const char* gates = at.template At<kGates>(task.in->gates, t);
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      const VF factor = at.Factor(gates, v);
      hn::Store(state[v], DF(), group.before[t - begin] + v * kLanes);
      hn::Store(factor, DF(), group.factor[t - begin] + v * kLanes);
      state[v] = hn::MulAdd(factor, state[v], at.Input(x, v));
    }
  }
}

template <DType kType, DType kGates, int kVectors>
static HWY_INLINE void ScanGradientLanes(
    const ElementwiseLanes<kType, kGates, kVectors>& at) {
  const ElementwiseTask& task = at.task;
  const ElementwiseRecurrenceGradients& grad = *task.gradient;
  ElementwiseGroup<kVectors> group;
  VF flow[kVectors];
  at.LoadState(grad.grad_final_state, task.sequence, flow);
  for (int64_t end = at.span.tokens; end > 0;) {
    const int64_t begin = (end - 1) / kElementwiseGroup * kElementwiseGroup;
    RebuildStates(at, begin, end, group);
    for (int64_t t = end - 1; t >= begin; --t) {
      const char* from = at.template At<kType>(grad.grad_out, t);
      char* dx = at.template At<kType>(grad.grad_inputs, t);
      char* dg = at.template At<kGates>(grad.grad_gates, t);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        const int64_t lane = v * kLanes;
        flow[v] = hn::Add(flow[v], at.Input(from, v));
        at.template Store<kType>(flow[v], dx, v, at.left);
        flow[v] =
            hn::Mul(flow[v], hn::Load(DF(), group.factor[t - begin] + lane));
        at.template Store<kGates>(
            hn::Mul(flow[v], hn::Load(DF(), group.before[t - begin] + lane)),
            dg, v, at.left);
      }
    }
    end = begin;
  }
  at.StoreState(flow, grad.grad_initial_state, task.sequence);
}

static void ElementwiseGradientBlock(const ElementwiseTask& task) {
  ForLanes(task, [](const auto& at) HWY_ATTR { ScanGradientLanes(at); });
  ZeroPads(task, task.gradient->grad_inputs);
  ZeroPads(task, task.gradient->grad_gates);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(ElementwiseGradientBlock);

void ElementwiseRecurrenceBackward(const ElementwiseRecurrenceInputs& in,
                                   const ElementwiseRecurrenceGradients& grad,
                                   Executor& executor) {
  CheckElementwiseCall(in, grad.grad_inputs, "grad_inputs");
  CheckElementwiseTensor(in, grad.grad_out, in.inputs, "grad_out");
  CheckElementwiseTensor(in, grad.grad_gates, in.gates, "grad_gates");
  if (grad.checkpoints == nullptr && ElementwiseCheckpoints(in) != 0) {
    throw ArgumentError("elementwise_recurrence: checkpoints",
                        "those of the forward call", "a null pointer");
  }
  ForElementwiseTasks({&in, nullptr, &grad, 0, 0, 0}, executor,
                      [](const ElementwiseTask& task) {
                        HWY_DYNAMIC_DISPATCH(ElementwiseGradientBlock)(task);
                      });
}

}  // namespace tarn
#endif  // HWY_ONCE
