#include "kernels/dropout/dropout.h"

#include <cmath>
#include <cstdint>

#include "core/error.h"
#include "kernels/row_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout/dropout.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/dropout/dropout-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void Scales(const DropoutKey& key, int64_t first, int64_t last,
                   int64_t width, float* scales) {
  for (int64_t row = first; row < last; ++row) {
    float* out = scales + row * width;
    ForEachVector(key, row, width, [&](int64_t i, int64_t n, VF s) HWY_ATTR {
      StoreN(s, out + i, n);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(Scales);

DropoutKey MakeDropoutKey(const DropoutOptions& options) {
  const double p = options.probability;
  if (!(p >= 0.0) || !(p < 1.0) || std::round(p * 65536) > 65535) {
    throw ArgumentError("dropout: probability",
                        "a number in [0, 1), below 1 in 65,536ths", StrCat(p));
  }
  DropoutKey key;
  key.seed = options.seed;
  key.first_row = options.first_row;
  key.threshold = static_cast<int32_t>(std::round(p * 65536));
  key.scale = 65536.0f / static_cast<float>(65536 - key.threshold);
  return key;
}

void DropoutScales(const DropoutOptions& options, int64_t rows, int64_t width,
                   float* scales, Executor& executor) {
  const DropoutKey key = MakeDropoutKey(options);
  if (rows < 0 || width < 0) {
    throw ShapeError("dropout: scales", "sizes of at least 0",
                     ShapeText({rows, width}));
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(Scales);
  const RowTasks tasks(rows);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(key, tasks.begin(task), tasks.end(task), width, scales);
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
