#include "emulated_byte_dot.h"

#include "kernels/matmul/formats/group_layout.h"
#include "kernels/matmul/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/formats/emulated_byte_dot.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "kernels/matmul/formats/group_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// vpdpbusd: unsigned bytes of w times signed bytes of x, four to a lane.
struct EmulatedByteDot {
  static constexpr int64_t kStepInputs = 4;
  static constexpr int kShortSteps = 0;
  static HWY_INLINE VI Add(VI acc, VI w, VI x) {
    // A byte of each lane with its sign, in its low or high half.
    const auto low = [](VI v) HWY_ATTR {
      return hn::And(hn::ShiftRight<24>(v), hn::Set(DI(), 0xFFFF));
    };
    const auto high = [](VI v) HWY_ATTR {
      return hn::ShiftLeft<16>(hn::ShiftRight<24>(v));
    };
    const VI even =
        hn::Or(low(hn::ShiftLeft<24>(x)), high(hn::ShiftLeft<8>(x)));
    const VI odd = hn::Or(low(hn::ShiftLeft<16>(x)), high(x));
    return AddPairs(AddPairs(acc, EvenBytes(w), even), OddBytes(w), odd);
  }
  static HWY_INLINE void StoreInputs(VI a, VI b, int64_t i, uint8_t* to) {
    StoreInt8(a, b, to + i);
  }
};

static void MultiplyInt8(const PanelTask& task) {
  MultiplyGroups<GroupKernel<EmulatedByteDot, 8, false>>(task);
}
static void MultiplyInt8Row(const RowPanels& task) {
  MultiplyGroupsRow<GroupKernel<EmulatedByteDot, 8, false>>(task);
}
static void MultiplyInt4(const PanelTask& task) {
  MultiplyGroups<GroupKernel<EmulatedByteDot, 4, false>>(task);
}
static void MultiplyInt4Row(const RowPanels& task) {
  MultiplyGroupsRow<GroupKernel<EmulatedByteDot, 4, false>>(task);
}
static void MultiplyInt4Minimum(const PanelTask& task) {
  MultiplyGroups<GroupKernel<EmulatedByteDot, 4, true>>(task);
}
static void MultiplyInt4MinimumRow(const RowPanels& task) {
  MultiplyGroupsRow<GroupKernel<EmulatedByteDot, 4, true>>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(MultiplyInt8);
HWY_EXPORT(MultiplyInt8Row);
HWY_EXPORT(MultiplyInt4);
HWY_EXPORT(MultiplyInt4Row);
HWY_EXPORT(MultiplyInt4Minimum);
HWY_EXPORT(MultiplyInt4MinimumRow);

namespace testing {

const WeightFormat kEmulatedInt8 =
    GroupRows<8, 64, false>::Row("emulated-int8", 1001,
                                 {[](const PanelTask& task) {
                                    HWY_DYNAMIC_DISPATCH(MultiplyInt8)
                                    (task);
                                  },
                                  [](const RowPanels& task) {
                                    HWY_DYNAMIC_DISPATCH(MultiplyInt8Row)(task);
                                  }},
                                 &kInt8Weights);
const WeightFormat kEmulatedInt4 =
    GroupRows<4, 32, false>::Row("emulated-int4", 1002,
                                 {[](const PanelTask& task) {
                                    HWY_DYNAMIC_DISPATCH(MultiplyInt4)
                                    (task);
                                  },
                                  [](const RowPanels& task) {
                                    HWY_DYNAMIC_DISPATCH(MultiplyInt4Row)(task);
                                  }},
                                 &kInt4Weights);
const WeightFormat kEmulatedInt4Minimum = GroupRows<4, 128, true>::Row(
    "emulated-int4m", 1003,
    {[](const PanelTask& task) {
       HWY_DYNAMIC_DISPATCH(MultiplyInt4Minimum)(task);
     },
     [](const RowPanels& task) {
       HWY_DYNAMIC_DISPATCH(MultiplyInt4MinimumRow)(task);
     }},
    &kInt4MinimumWeights128);

}  // namespace testing
}  // namespace tarn
#endif  // HWY_ONCE
