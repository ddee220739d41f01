#include "kernels/aft_simple/aft_simple.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/aft_simple/aft_simple.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/aft_simple/recurrence-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void ForwardSlice(const Slice& s, const Rows& out) {
  const DF d;
  Memory memory(s);
  HWY_ALIGN float average[kSliceChannels];
  Average(s, memory, average);
  int64_t next = 0;
  const auto absorb_to = [&](int64_t end) HWY_ATTR {
    bool absorbed = false;
    for (; next < end; ++next) {
      if (!s.Keeps(next)) continue;
      Absorb<false>(s, next, memory, nullptr);
      absorbed = true;
    }
    return absorbed;
  };
  for (int64_t row = 0; row < s.queries; ++row) {
    if (absorb_to(s.KeysOf(row))) Average(s, memory, average);
    const float* q = s.q[row];
    float* to = out[row];
    ForVectors(s.channels, [&](int64_t i, int64_t n) HWY_ATTR {
      const VF gate = LogisticAt(LoadSome(q + i, n)).below;
      const VF y = hn::Mul(gate, hn::Load(d, average + i));
      const auto none = hn::Eq(hn::Load(d, memory.b + i), hn::Zero(d));
      StoreSome(hn::IfThenZeroElse(none, y), to + i, n);
    });
  }
  absorb_to(s.keys);
  std::copy_n(memory.m, s.channels, s.state.m);
  std::copy_n(memory.a, s.channels, s.state.a);
  std::copy_n(memory.b, s.channels, s.state.b);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(ForwardSlice);

}  // namespace

void AftSimpleForward(const AftSimpleInputs& in, const AftSimpleState& state,
                      const TensorView& out, Executor& executor) {
  aft_simple::CheckInputs(in);
  aft_simple::CheckState("state", in, state, /*optional=*/false);
  aft_simple::CheckView("out", out, in.queries, /*optional=*/false);
  const auto kernel = HWY_DYNAMIC_DISPATCH(ForwardSlice);
  const aft_simple::Slices slices(in, {&out});
  executor.ParallelFor(slices.count(), [&](int64_t task, int) {
    kernel(slices.At(task, state), slices.RowsOf(out, task));
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
