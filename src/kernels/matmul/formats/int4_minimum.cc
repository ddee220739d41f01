// 4 bits, a float16 scale and a float16 minimum for each group of inputs: 5
// bits a weight.
#include "kernels/matmul/formats/group_layout.h"
#include "kernels/matmul/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/formats/int4_minimum.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "kernels/matmul/formats/group_exact-inl.h"
#include "kernels/matmul/formats/group_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void MultiplyInt4Minimum(const PanelTask& task) {
  MultiplyAnyGroups<4, true>(task);
}
static void MultiplyInt4MinimumRow(const RowPanels& task) {
  MultiplyAnyGroupsRow<4, true>(task);
}
static void MultiplyInt4MinimumExact(const PanelTask& task) {
  MultiplyPanels<GroupPanel<4, true>>(task);
}
static void MultiplyInt4MinimumExactRow(const RowPanels& task) {
  MultiplyRow<GroupPanel<4, true>>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(MultiplyInt4Minimum);
HWY_EXPORT(MultiplyInt4MinimumRow);
HWY_EXPORT(MultiplyInt4MinimumExact);
HWY_EXPORT(MultiplyInt4MinimumExactRow);

namespace {

constexpr GroupProducts kInt4MinimumProducts = {
    [](const PanelTask& task) {
      HWY_DYNAMIC_DISPATCH(MultiplyInt4Minimum)(task);
    },
    [](const RowPanels& task) {
      HWY_DYNAMIC_DISPATCH(MultiplyInt4MinimumRow)(task);
    }};
constexpr GroupProducts kInt4MinimumExactProducts = {
    [](const PanelTask& task) {
      HWY_DYNAMIC_DISPATCH(MultiplyInt4MinimumExact)(task);
    },
    [](const RowPanels& task) {
      HWY_DYNAMIC_DISPATCH(MultiplyInt4MinimumExactRow)(task);
    }};

template <int64_t kGroup>
using Int4MinimumRows = GroupRows<4, kGroup, true>;

constexpr WeightFormat kInt4MinimumExact32 =
    Int4MinimumRows<32>::Row("int4m", 108, kInt4MinimumExactProducts, nullptr);
constexpr WeightFormat kInt4MinimumExact64 = Int4MinimumRows<64>::Row(
    "int4m-64", 109, kInt4MinimumExactProducts, nullptr);
constexpr WeightFormat kInt4MinimumExact128 = Int4MinimumRows<128>::Row(
    "int4m-128", 110, kInt4MinimumExactProducts, nullptr);

}  // namespace

const WeightFormat kInt4MinimumWeights = Int4MinimumRows<32>::Row(
    "int4m", 8, kInt4MinimumProducts, &kInt4MinimumExact32);
const WeightFormat kInt4MinimumWeights64 = Int4MinimumRows<64>::Row(
    "int4m-64", 9, kInt4MinimumProducts, &kInt4MinimumExact64);
const WeightFormat kInt4MinimumWeights128 = Int4MinimumRows<128>::Row(
    "int4m-128", 10, kInt4MinimumProducts, &kInt4MinimumExact128);

}  // namespace tarn
#endif  // HWY_ONCE
