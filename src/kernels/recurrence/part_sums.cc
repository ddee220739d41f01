#include "kernels/recurrence/part_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/part_sums.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void SumPartRows(const PartSums& s) {
  for (int64_t part = 1; part < s.count; ++part) {
    AddRow(s.parts + part * s.stride, s.rows * s.key, s.parts);
  }
  for (int64_t r = 0; r < s.rows; ++r) {
    StoreRow(s.to->dtype, s.parts + r * s.key, s.to->size[3],
             s.to->Row(s.batch, s.first + r, s.head));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(SumPartRows);

void SumParts(const PartSums& sums) { HWY_DYNAMIC_DISPATCH(SumPartRows)(sums); }

}  // namespace tarn
#endif  // HWY_ONCE
