#include "kernels/swiglu/swiglu.h"

#include <cstdint>

#include "core/error.h"
#include "kernels/row_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/swiglu/swiglu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/activation/activation-inl.h"
#include "kernels/dropout/dropout-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void ForwardRows(const DropoutKey& key, int64_t first, int64_t last,
                        int64_t width, const float* gate, const float* up,
                        float* y) {
  for (int64_t row = first; row < last; ++row) {
    const int64_t offset = row * width;
    ForEachVector(key, row, width, [&](int64_t i, int64_t n, VF s) HWY_ATTR {
      const VF silu = SiluOf(LoadN(gate + offset + i, n));
      const VF product = hn::Mul(silu, LoadN(up + offset + i, n));
      StoreN(hn::Mul(product, s), y + offset + i, n);
    });
  }
}

static void BackwardRows(const DropoutKey& key, int64_t first, int64_t last,
                         int64_t width, const SwigluGradients& g) {
  for (int64_t row = first; row < last; ++row) {
    const int64_t offset = row * width;
    ForEachVector(key, row, width, [&](int64_t i, int64_t n, VF s) HWY_ATTR {
      const int64_t at = offset + i;
      const VF up = LoadN(g.up + at, n);
      const VF dy = hn::Mul(LoadN(g.grad_y + at, n), s);
      const SiluCurve silu = SiluAt(LoadN(g.gate + at, n));
      if (g.y != nullptr) {
        StoreN(hn::Mul(hn::Mul(silu.value, up), s), g.y + at, n);
      }
      if (g.grad_up != nullptr) {
        StoreN(hn::Mul(dy, silu.value), g.grad_up + at, n);
      }
      if (g.grad_gate != nullptr) {
        StoreN(hn::Mul(hn::Mul(dy, up), silu.slope), g.grad_gate + at, n);
      }
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(ForwardRows);
HWY_EXPORT(BackwardRows);

void WantSizes(int64_t rows, int64_t width) {
  if (rows < 0 || width < 0) {
    throw ShapeError("swiglu: gate", "sizes of at least 0",
                     ShapeText({rows, width}));
  }
}

void WantData(const char* name, const void* data, int64_t rows, int64_t width) {
  if (data == nullptr && rows > 0 && width > 0) {
    throw ArgumentError(StrCat("swiglu: ", name), "data", "a null pointer");
  }
}

}  // namespace

void SwigluForward(const DropoutOptions& dropout, int64_t rows, int64_t width,
                   const float* gate, const float* up, float* y,
                   Executor& executor) {
  const DropoutKey key = MakeDropoutKey(dropout);
  WantSizes(rows, width);
  WantData("gate", gate, rows, width);
  WantData("up", up, rows, width);
  WantData("y", y, rows, width);
  const auto kernel = HWY_DYNAMIC_DISPATCH(ForwardRows);
  const RowTasks tasks(rows);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(key, tasks.begin(task), tasks.end(task), width, gate, up, y);
  });
}

void SwigluBackward(const DropoutOptions& dropout, int64_t rows, int64_t width,
                    const SwigluGradients& g, Executor& executor) {
  const DropoutKey key = MakeDropoutKey(dropout);
  WantSizes(rows, width);
  WantData("grad_y", g.grad_y, rows, width);
  WantData("gate", g.gate, rows, width);
  WantData("up", g.up, rows, width);
  const auto kernel = HWY_DYNAMIC_DISPATCH(BackwardRows);
  const RowTasks tasks(rows);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(key, tasks.begin(task), tasks.end(task), width, g);
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
