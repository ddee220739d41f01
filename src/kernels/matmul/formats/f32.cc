// float32: 256 bytes for each input of a panel.
#include "kernels/matmul/formats/elements.h"
#include "kernels/matmul/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/formats/f32.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "kernels/matmul/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void MultiplyF32(const PanelTask& task) {
  MultiplyPanels<FloatPanel>(task);
}
static void MultiplyF32Row(const RowPanels& task) {
  MultiplyRow<FloatPanel>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(MultiplyF32);
HWY_EXPORT(MultiplyF32Row);

const WeightFormat kF32Weights = {
    .name = "f32",
    .id = 0,
    .panel_bytes = ElementPanelBytes<float>,
    .pack =
        [](const float* weights, int64_t rows, int64_t inputs, int64_t column,
           uint8_t* panel) {
          PackElements<float>(weights, rows, inputs, column, panel,
                              [](float x) { return x; });
        },
    .read =
        [](const uint8_t* panel, int64_t inputs, int64_t column, float* out) {
          ReadElements<float>(panel, inputs, column, out,
                              [](float x) { return x; });
        },
    .multiply =
        [](const PanelTask& task) {
          HWY_DYNAMIC_DISPATCH(MultiplyF32)
          (task);
        },
    .multiply_row =
        [](const RowPanels& task) {
          HWY_DYNAMIC_DISPATCH(MultiplyF32Row)(task);
        },
};

}  // namespace tarn
#endif  // HWY_ONCE
