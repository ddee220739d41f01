// 8 bits and a float16 scale for each group of inputs: 8.25 bits a weight.
#include "kernels/matmul/formats/group_layout.h"
#include "kernels/matmul/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/formats/int8.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "kernels/matmul/formats/group_exact-inl.h"
#include "kernels/matmul/formats/group_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void MultiplyInt8(const PanelTask& task) {
  MultiplyAnyGroups<8, false>(task);
}
static void MultiplyInt8Row(const RowPanels& task) {
  MultiplyAnyGroupsRow<8, false>(task);
}
static void MultiplyInt8Exact(const PanelTask& task) {
  MultiplyPanels<GroupPanel<8, false>>(task);
}
static void MultiplyInt8ExactRow(const RowPanels& task) {
  MultiplyRow<GroupPanel<8, false>>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(MultiplyInt8);
HWY_EXPORT(MultiplyInt8Row);
HWY_EXPORT(MultiplyInt8Exact);
HWY_EXPORT(MultiplyInt8ExactRow);

namespace {

constexpr GroupProducts kInt8Products = {[](const PanelTask& task) {
                                           HWY_DYNAMIC_DISPATCH(MultiplyInt8)
                                           (task);
                                         },
                                         [](const RowPanels& task) {
                                           HWY_DYNAMIC_DISPATCH(MultiplyInt8Row)
                                           (task);
                                         }};
constexpr GroupProducts kInt8ExactProducts = {
    [](const PanelTask& task) {
      HWY_DYNAMIC_DISPATCH(MultiplyInt8Exact)(task);
    },
    [](const RowPanels& task) {
      HWY_DYNAMIC_DISPATCH(MultiplyInt8ExactRow)(task);
    }};

template <int64_t kGroup>
using Int8Rows = GroupRows<8, kGroup, false>;

constexpr WeightFormat kInt8Exact64 =
    Int8Rows<64>::Row("int8", 102, kInt8ExactProducts, nullptr);
constexpr WeightFormat kInt8Exact32 =
    Int8Rows<32>::Row("int8-32", 104, kInt8ExactProducts, nullptr);
constexpr WeightFormat kInt8Exact128 =
    Int8Rows<128>::Row("int8-128", 105, kInt8ExactProducts, nullptr);

}  // namespace

const WeightFormat kInt8Weights =
    Int8Rows<64>::Row("int8", 2, kInt8Products, &kInt8Exact64);
const WeightFormat kInt8Weights32 =
    Int8Rows<32>::Row("int8-32", 4, kInt8Products, &kInt8Exact32);
const WeightFormat kInt8Weights128 =
    Int8Rows<128>::Row("int8-128", 5, kInt8Products, &kInt8Exact128);

}  // namespace tarn
#endif  // HWY_ONCE
