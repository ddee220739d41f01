#include "kernels/residual_norm/residual_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/error.h"
#include "kernels/row_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/residual_norm/residual_norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/residual_norm/residual_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void ForwardRows(const DropoutKey& key, double eps, int64_t first,
                        int64_t last, int64_t width,
                        const ResidualNormTensors& t) {
  for (int64_t row = first; row < last; ++row) {
    // Without a place for s it passes through y, row by row.
    float* s = (t.s != nullptr ? t.s : t.y) + row * width;
    const float sum = AddResidual(key, row, width, t, s);
    if (t.gamma == nullptr) continue;
    NormaliseRow(s, sum, width, eps, t.gamma, t.beta, t.y + row * width,
                 t.mean + row, t.inverse + row);
  }
}

// sums: [3, width] of bias, gamma and beta.
static void BackwardRows(const DropoutKey& key, int64_t first, int64_t last,
                         int64_t width, const ResidualNormGradients& g,
                         float* sums) {
  std::fill(sums, sums + 3 * width, 0.0f);
  float* sum_bias = g.grad_bias != nullptr ? sums : nullptr;
  float* sum_gamma = g.grad_gamma != nullptr ? sums + width : nullptr;
  float* sum_beta = g.grad_beta != nullptr ? sums + 2 * width : nullptr;
  const bool through_norm = g.gamma != nullptr && g.grad_y != nullptr;
  for (int64_t row = first; row < last; ++row) {
    const VF zero = hn::Zero(DF());
    const NormRow norm = through_norm
                             ? MeasureRow(g, row, width, sum_gamma, sum_beta)
                             : NormRow{zero, zero, zero, zero};
    GradientRow(key, g, row, width, through_norm, norm, sum_bias);
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

void WantSizes(int64_t rows, int64_t width, bool norm) {
  if (rows < 0 || width < (norm ? 1 : 0)) {
    throw ShapeError(
        "residual_norm: x",
        norm ? "rows >= 0 and a width of at least 1" : "sizes of at least 0",
        ShapeText({rows, width}));
  }
}

void WantData(const char* name, const void* data, bool empty) {
  if (data == nullptr && !empty) {
    throw ArgumentError(StrCat("residual_norm: ", name), "data",
                        "a null pointer");
  }
}

}  // namespace

void ResidualNormForward(const ResidualNormOptions& options, int64_t rows,
                         int64_t width, const ResidualNormTensors& t,
                         Executor& executor) {
  const DropoutKey key = MakeDropoutKey(options.dropout);
  WantSizes(rows, width, t.gamma != nullptr);
  const bool empty = rows == 0 || width == 0;
  WantData("x", t.x, empty);
  if (t.gamma != nullptr) {
    WantData("beta", t.beta, empty);
    WantData("y", t.y, empty);
    WantData("mean", t.mean, empty);
    WantData("inverse", t.inverse, empty);
  } else {
    WantData("s", t.s, empty);
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(ForwardRows);
  const RowTasks tasks(rows);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(key, options.eps, tasks.begin(task), tasks.end(task), width, t);
  });
}

int64_t ResidualNormWorkspaceFloats(int64_t rows, int64_t width) {
  return 3 * RowTasks(rows).count() * width;
}

void ResidualNormBackward(const ResidualNormOptions& options, int64_t rows,
                          int64_t width, const ResidualNormGradients& g,
                          float* workspace, Executor& executor) {
  const DropoutKey key = MakeDropoutKey(options.dropout);
  WantSizes(rows, width, g.gamma != nullptr);
  const bool empty = rows == 0 || width == 0;
  if (g.gamma != nullptr && g.grad_y != nullptr) {
    WantData("s", g.s, empty);
    WantData("mean", g.mean, empty);
    WantData("inverse", g.inverse, empty);
  }
  WantData("workspace", workspace, empty);
  const auto kernel = HWY_DYNAMIC_DISPATCH(BackwardRows);
  const RowTasks tasks(rows);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(key, tasks.begin(task), tasks.end(task), width, g,
           workspace + 3 * task * width);
  });
  float* const sums[] = {g.grad_bias, g.grad_gamma, g.grad_beta};
  for (int64_t k = 0; k < 3; ++k) {
    if (sums[k] != nullptr) {
      tasks.AddUp(workspace + k * width, 3 * width, width, sums[k]);
    }
  }
}

}  // namespace tarn
#endif  // HWY_ONCE
