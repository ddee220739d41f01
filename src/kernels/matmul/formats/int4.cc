// 4 bits and a float16 scale for each group of inputs: 4.5 bits a weight.
#include "kernels/matmul/formats/group_layout.h"
#include "kernels/matmul/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/formats/int4.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "kernels/matmul/formats/group_exact-inl.h"
#include "kernels/matmul/formats/group_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void MultiplyInt4(const PanelTask& task) {
  MultiplyAnyGroups<4, false>(task);
}
static void MultiplyInt4Row(const RowPanels& task) {
  MultiplyAnyGroupsRow<4, false>(task);
}
static void MultiplyInt4Exact(const PanelTask& task) {
  MultiplyPanels<GroupPanel<4, false>>(task);
}
static void MultiplyInt4ExactRow(const RowPanels& task) {
  MultiplyRow<GroupPanel<4, false>>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(MultiplyInt4);
HWY_EXPORT(MultiplyInt4Row);
HWY_EXPORT(MultiplyInt4Exact);
HWY_EXPORT(MultiplyInt4ExactRow);

namespace {

constexpr GroupProducts kInt4Products = {[](const PanelTask& task) {
                                           HWY_DYNAMIC_DISPATCH(MultiplyInt4)
                                           (task);
                                         },
                                         [](const RowPanels& task) {
                                           HWY_DYNAMIC_DISPATCH(MultiplyInt4Row)
                                           (task);
                                         }};
constexpr GroupProducts kInt4ExactProducts = {
    [](const PanelTask& task) {
      HWY_DYNAMIC_DISPATCH(MultiplyInt4Exact)(task);
    },
    [](const RowPanels& task) {
      HWY_DYNAMIC_DISPATCH(MultiplyInt4ExactRow)(task);
    }};

template <int64_t kGroup>
using Int4Rows = GroupRows<4, kGroup, false>;

constexpr WeightFormat kInt4Exact32 =
    Int4Rows<32>::Row("int4", 103, kInt4ExactProducts, nullptr);
constexpr WeightFormat kInt4Exact64 =
    Int4Rows<64>::Row("int4-64", 106, kInt4ExactProducts, nullptr);
constexpr WeightFormat kInt4Exact128 =
    Int4Rows<128>::Row("int4-128", 107, kInt4ExactProducts, nullptr);

}  // namespace

const WeightFormat kInt4Weights =
    Int4Rows<32>::Row("int4", 3, kInt4Products, &kInt4Exact32);
const WeightFormat kInt4Weights64 =
    Int4Rows<64>::Row("int4-64", 6, kInt4Products, &kInt4Exact64);
const WeightFormat kInt4Weights128 =
    Int4Rows<128>::Row("int4-128", 7, kInt4Products, &kInt4Exact128);

}  // namespace tarn
#endif  // HWY_ONCE
