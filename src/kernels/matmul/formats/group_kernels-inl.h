// Which dot product a target uses for formats of groups.

#if defined(TARN_KERNELS_MATMUL_GROUP_KERNELS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_MATMUL_GROUP_KERNELS_INL_H_
#undef TARN_KERNELS_MATMUL_GROUP_KERNELS_INL_H_
#else
#define TARN_KERNELS_MATMUL_GROUP_KERNELS_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/matmul/formats/byte_dot.h"
#include "kernels/matmul/formats/group_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

#if TARN_HAVE_PAIR_DOT
template <int kBits>
using PlainDot = std::conditional_t<kBits == 4, ShortDot, PairDot>;
#else
template <int kBits>
using PlainDot = PairDot;
#endif

template <int kBits, bool kMinimum>
void MultiplyAnyGroups(const PanelTask& task) {
#if TARN_HAVE_BYTE_DOT
  if (HasByteDot()) {
    MultiplyGroups<GroupKernel<ByteDot, kBits, kMinimum>>(task);
    return;
  }
#endif
  MultiplyGroups<GroupKernel<PlainDot<kBits>, kBits, kMinimum>>(task);
}

template <int kBits, bool kMinimum>
void MultiplyAnyGroupsRow(const RowPanels& task) {
#if TARN_HAVE_BYTE_DOT
  if (HasByteDot()) {
    MultiplyGroupsRow<GroupKernel<ByteDot, kBits, kMinimum>>(task);
    return;
  }
#endif
  MultiplyGroupsRow<GroupKernel<PlainDot<kBits>, kBits, kMinimum>>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // TARN_KERNELS_MATMUL_GROUP_KERNELS_INL_H_
