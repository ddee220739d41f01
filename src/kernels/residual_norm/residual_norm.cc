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

// One function per kind, not inlined: together in one function, the kinds cost
// each other registers (5 % of the instructions of a layer norm).
template <NormKind kKind>
HWY_NOINLINE void ForwardRowsOf(const DropoutKey& key, double eps,
                                int64_t first, int64_t last, int64_t width,
                                const ResidualNormTensors& t) {
  for (int64_t row = first; row < last; ++row) {
    // Without memory for s it is stored in y, row by row.
    float* s = (t.s != nullptr ? t.s : t.y) + row * width;
    const float sum = AddResidual<kKind>(key, row, width, t, s);
    if (t.gamma == nullptr) continue;
    float* y = t.y + row * width;
    if constexpr (kKind == NormKind::kRms) {
      ScaleRow(s, sum, width, eps, t.gamma, y, t.inverse + row);
    } else {
      NormaliseRow(s, sum, width, eps, t.gamma, t.beta, y, t.mean + row,
                   t.inverse + row);
    }
  }
}

static void ForwardRows(const ResidualNormOptions& options,
                        const DropoutKey& key, int64_t first, int64_t last,
                        int64_t width, const ResidualNormTensors& t) {
  switch (options.kind) {
    case NormKind::kLayer:
      return ForwardRowsOf<NormKind::kLayer>(key, options.eps, first, last,
                                             width, t);
    case NormKind::kRms:
      return ForwardRowsOf<NormKind::kRms>(key, options.eps, first, last, width,
                                           t);
  }
}

// sums: [3, width] of bias, gamma and beta.
template <NormKind kKind>
HWY_NOINLINE void BackwardRowsOf(const DropoutKey& key, int64_t first,
                                 int64_t last, int64_t width,
                                 const ResidualNormGradients& g, float* sums) {
  std::fill(sums, sums + 3 * width, 0.0f);
  float* sum_bias = g.grad_bias != nullptr ? sums : nullptr;
  float* sum_gamma = g.grad_gamma != nullptr ? sums + width : nullptr;
  float* sum_beta = g.grad_beta != nullptr ? sums + 2 * width : nullptr;
  const bool through_norm = g.gamma != nullptr && g.grad_y != nullptr;
  for (int64_t row = first; row < last; ++row) {
    const VF zero = hn::Zero(DF());
    const NormRow norm =
        through_norm ? MeasureRow<kKind>(g, row, width, sum_gamma, sum_beta)
                     : NormRow{zero, zero, zero, zero};
    GradientRow<kKind>(key, g, row, width, through_norm, norm, sum_bias);
  }
}

static void BackwardRows(NormKind kind, const DropoutKey& key, int64_t first,
                         int64_t last, int64_t width,
                         const ResidualNormGradients& g, float* sums) {
  switch (kind) {
    case NormKind::kLayer:
      return BackwardRowsOf<NormKind::kLayer>(key, first, last, width, g, sums);
    case NormKind::kRms:
      return BackwardRowsOf<NormKind::kRms>(key, first, last, width, g, sums);
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

// An RMS norm adds no beta: what would be ignored is refused.
void WantNoBeta(const char* name, const void* data, NormKind kind) {
  if (data != nullptr && kind == NormKind::kRms) {
    throw ArgumentError(StrCat("residual_norm: ", name),
                        "null with an RMS norm", "data");
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
  WantNoBeta("beta", t.beta, options.kind);
  if (t.gamma != nullptr) {
    const bool layer = options.kind == NormKind::kLayer;
    if (layer) WantData("beta", t.beta, empty);
    WantData("y", t.y, empty);
    if (layer) WantData("mean", t.mean, empty);
    WantData("inverse", t.inverse, empty);
  } else {
    WantData("s", t.s, empty);
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(ForwardRows);
  const RowTasks tasks(rows);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(options, key, tasks.begin(task), tasks.end(task), width, t);
  });
}

void ResidualNormForwardRows(const ResidualNormOptions& options, int64_t begin,
                             int64_t end, int64_t width,
                             const ResidualNormTensors& t) {
  HWY_DYNAMIC_DISPATCH(ForwardRows)
  (options, MakeDropoutKey(options.dropout), begin, end, width, t);
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
  WantNoBeta("grad_beta", g.grad_beta, options.kind);
  if (g.gamma != nullptr && g.grad_y != nullptr) {
    WantData("s", g.s, empty);
    if (options.kind == NormKind::kLayer) WantData("mean", g.mean, empty);
    WantData("inverse", g.inverse, empty);
  }
  WantData("workspace", workspace, empty);
  const auto kernel = HWY_DYNAMIC_DISPATCH(BackwardRows);
  const RowTasks tasks(rows);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(options.kind, key, tasks.begin(task), tasks.end(task), width, g,
           workspace + 3 * task * width);
  });
  float* const sums[] = {g.grad_bias, g.grad_gamma, g.grad_beta};
  for (int64_t k = 0; k < 3; ++k) {
    if (sums[k] != nullptr) {
      tasks.AddUp(workspace + k * width, 3 * width, width, sums[k]);
    }
  }
}

void ResidualNormBackwardRows(const ResidualNormOptions& options, int64_t begin,
                              int64_t end, int64_t width,
                              const ResidualNormGradients& g, float* sums) {
  HWY_DYNAMIC_DISPATCH(BackwardRows)
  (options.kind, MakeDropoutKey(options.dropout), begin, end, width, g, sums);
}

}  // namespace tarn
#endif  // HWY_ONCE
