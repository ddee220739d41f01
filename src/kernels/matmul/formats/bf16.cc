// bfloat16, rounded to nearest even when packed: 128 bytes for each input of a
// panel. Products widen it exactly and accumulate in float32.
#include "core/half.h"
#include "kernels/matmul/formats/elements.h"
#include "kernels/matmul/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/formats/bf16.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "kernels/matmul/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

class BF16Panel {
 public:
  static constexpr int64_t kLines = 2;
  static constexpr bool kIsFloat = false;

  BF16Panel(const WeightMatrix& w, int64_t p)
      : at_(reinterpret_cast<const uint16_t*>(w.Panel(p))) {}
  HWY_INLINE BF16Panel From(int64_t input, int64_t output) const {
    return BF16Panel(at_ + input * kPanelOutputs + output);
  }
  HWY_INLINE const void* Address() const { return at_; }
  HWY_INLINE VF Load(DF d, int64_t input, int64_t output) const {
    return LoadVector<DType::kBF16>(d, at_ + input * kPanelOutputs + output);
  }

 private:
  explicit BF16Panel(const uint16_t* at) : at_(at) {}
  const uint16_t* at_;  // [inputs][kPanelOutputs]
};

static void MultiplyBF16(const PanelTask& task) {
  MultiplyPanels<BF16Panel>(task);
}
static void MultiplyBF16Row(const RowPanels& task) {
  MultiplyRow<BF16Panel>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(MultiplyBF16);
HWY_EXPORT(MultiplyBF16Row);

const WeightFormat kBF16Weights = {
    .name = "bf16",
    .id = 1,
    .panel_bytes = ElementPanelBytes<uint16_t>,
    .pack =
        [](const float* weights, int64_t rows, int64_t inputs, int64_t column,
           uint8_t* panel) {
          PackElements<uint16_t>(weights, rows, inputs, column, panel,
                                 F32ToBF16);
        },
    .read =
        [](const uint8_t* panel, int64_t inputs, int64_t column, float* out) {
          ReadElements<uint16_t>(panel, inputs, column, out, BF16ToF32);
        },
    .multiply =
        [](const PanelTask& task) {
          HWY_DYNAMIC_DISPATCH(MultiplyBF16)
          (task);
        },
    .multiply_row =
        [](const RowPanels& task) {
          HWY_DYNAMIC_DISPATCH(MultiplyBF16Row)(task);
        },
};

}  // namespace tarn
#endif  // HWY_ONCE
