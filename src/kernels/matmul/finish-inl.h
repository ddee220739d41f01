// What becomes of a product before it is stored (MatMulFinish).

#if defined(TARN_KERNELS_MATMUL_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_MATMUL_FINISH_INL_H_
#undef TARN_KERNELS_MATMUL_FINISH_INL_H_
#else
#define TARN_KERNELS_MATMUL_FINISH_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/activation/activation-inl.h"
#include "kernels/matmul/panel_task.h"
#include "kernels/matmul/tiles-inl.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Turns the product in c [kPanel] into what is to be stored at y.
HWY_INLINE void FinishRow(MatMulFinish finish, int64_t columns, const float* y,
                          float* c) {
  switch (finish) {
    case MatMulFinish::kStore:
      break;
    case MatMulFinish::kRelu:
      TransformRow(c, kPanel, c, [](VF v) HWY_ATTR { return ReluOf(v); });
      break;
    case MatMulFinish::kGelu:
      TransformRow(c, kPanel, c, [](VF v) HWY_ATTR { return GeluOf(v); });
      break;
    case MatMulFinish::kGeluTanh:
      TransformRow(c, kPanel, c, [](VF v) HWY_ATTR { return GeluTanhOf(v); });
      break;
    case MatMulFinish::kAdd:
      for (int64_t i = 0; i < columns; ++i) c[i] = y[i] + c[i];
      break;
    case MatMulFinish::kSwiglu:
      CombineRows(c, y, columns, c, [](VF gate, VF up) HWY_ATTR {
        return hn::Mul(SiluOf(gate), up);
      });
      break;
  }
}

// Stores the products in c [rows, kPanel] of panel p and rows from `begin` on.
HWY_INLINE void FinishRows(const PanelTask& task, int64_t p, int64_t begin,
                           int64_t rows, float* c) {
  const int64_t columns = task.w->Outputs(p), first = task.w->FirstOutput(p);
  for (int64_t r = 0; r < rows; ++r, c += kPanel) {
    float* y = task.y->Row(begin + r) + first;
    FinishRow(task.finish, columns, y, c);
    std::memcpy(y, c, static_cast<size_t>(columns) * sizeof(float));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // TARN_KERNELS_MATMUL_FINISH_INL_H_
