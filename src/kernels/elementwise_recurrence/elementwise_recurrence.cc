// Forward pass: each vector of channels runs over time with its state in a
// register.
#include "kernels/elementwise_recurrence/elementwise_recurrence.h"

#include <cstdint>

#include "kernels/elementwise_recurrence/channels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "kernels/elementwise_recurrence/elementwise_recurrence.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/elementwise_recurrence/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

template <DType kType, DType kGates, int kVectors>
static HWY_INLINE void ScanLanes(
    const ElementwiseLanes<kType, kGates, kVectors>& at) {
  const ElementwiseTask& task = at.task;
  VF state[kVectors];
  at.LoadState(task.in->initial_state, task.sequence, state);
  for (int64_t t = 0; t < at.span.tokens; ++t) {
    if (t != 0 && t % kElementwiseGroup == 0) {
      at.StoreState(state, task.out->checkpoints,
                    at.span.checkpoint + t / kElementwiseGroup - 1);
    }
    const char* x = at.template At<kType>(task.in->inputs, t);
    const char* gates = at.template At<kGates>(task.in->gates, t);
    char* out = at.template At<kType>(task.out->out, t);
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      state[v] = hn::MulAdd(at.Factor(gates, v), state[v], at.Input(x, v));
      at.template Store<kType>(state[v], out, v, at.left);
    }
  }
  at.StoreState(state, task.out->final_state, task.sequence);
}

static void ElementwiseBlock(const ElementwiseTask& task) {
  ForLanes(task, [](const auto& at) HWY_ATTR { ScanLanes(at); });
  ZeroPads(task, task.out->out);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(ElementwiseBlock);

void ElementwiseRecurrenceForward(const ElementwiseRecurrenceInputs& in,
                                  const ElementwiseRecurrenceOutputs& outputs,
                                  Executor& executor) {
  CheckElementwiseRecurrence(in, outputs.out);
  ForElementwiseTasks({&in, &outputs, nullptr, 0, 0, 0}, executor,
                      [](const ElementwiseTask& task) {
                        HWY_DYNAMIC_DISPATCH(ElementwiseBlock)(task);
                      });
}

}  // namespace tarn
#endif  // HWY_ONCE
