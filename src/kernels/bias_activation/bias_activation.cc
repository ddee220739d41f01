#include "kernels/bias_activation/bias_activation.h"

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "kernels/row_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bias_activation/bias_activation.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/activation/activation-inl.h"
#include "kernels/dropout/dropout-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

template <Nonlinearity kActivation>
HWY_INLINE VF Activate(VF u) {
  if constexpr (kActivation == Nonlinearity::kRelu) return ReluOf(u);
  if constexpr (kActivation == Nonlinearity::kGelu) return GeluOf(u);
  return u;
}

template <Nonlinearity kActivation>
HWY_INLINE void ForwardRowsOf(const DropoutKey& key, int64_t first,
                              int64_t last, int64_t width, const float* x,
                              const float* bias, float* y) {
  const DF d;
  for (int64_t row = first; row < last; ++row, x += width, y += width) {
    const float* from = x;
    float* to = y;
    ForEachVector(key, row, width, [&](int64_t i, int64_t n, VF s) HWY_ATTR {
      const VF shift = bias == nullptr ? hn::Zero(d) : LoadN(bias + i, n);
      const VF u = hn::Add(LoadN(from + i, n), shift);
      StoreN(hn::Mul(Activate<kActivation>(u), s), to + i, n);
    });
  }
}

// x, y: row `first`.
static void ForwardRows(Nonlinearity activation, const DropoutKey& key,
                        int64_t first, int64_t last, int64_t width,
                        const float* x, const float* bias, float* y) {
  switch (activation) {
    case Nonlinearity::kIdentity:
      return ForwardRowsOf<Nonlinearity::kIdentity>(key, first, last, width, x,
                                                    bias, y);
    case Nonlinearity::kRelu:
      return ForwardRowsOf<Nonlinearity::kRelu>(key, first, last, width, x,
                                                bias, y);
    case Nonlinearity::kGelu:
      return ForwardRowsOf<Nonlinearity::kGelu>(key, first, last, width, x,
                                                bias, y);
  }
}

// dy * s * act'(u) of the vector that begins at element i of the row.
template <Nonlinearity kActivation>
HWY_INLINE VF Gradient(const DropoutKey& key, const BiasActivationGradients& g,
                       int64_t offset, int64_t i, int64_t n, VF s) {
  const DF d;
  const VF dy = LoadN(g.grad_y + offset + i, n);
  if constexpr (kActivation == Nonlinearity::kRelu) {
    // y is 0 exactly where it was cut or dropped; NaN counts as kept.
    const VF y = LoadN(g.y + offset + i, n);
    return hn::IfThenZeroElse(hn::Le(y, hn::Zero(d)),
                              hn::Mul(dy, hn::Set(d, key.scale)));
  }
  if constexpr (kActivation == Nonlinearity::kGelu) {
    const VF shift = g.bias == nullptr ? hn::Zero(d) : LoadN(g.bias + i, n);
    const VF u = hn::Add(LoadN(g.x + offset + i, n), shift);
    const NormalCurve normal = NormalAt(u);
    if (g.y_again != nullptr) {
      StoreN(hn::Mul(hn::Mul(u, normal.below), s), g.y_again + offset + i, n);
    }
    return hn::Mul(hn::Mul(dy, s), GeluSlopeOf(u, normal));
  }
  return hn::Mul(dy, s);
}

// sums: [width], the rows' contribution to grad_bias; null: not wanted.
template <Nonlinearity kActivation>
HWY_INLINE void BackwardRowsOf(const DropoutKey& key, int64_t first,
                               int64_t last, int64_t width,
                               const BiasActivationGradients& g, float* sums) {
  // relu reads the mask from y.
  DropoutKey drawn = key;
  if (kActivation == Nonlinearity::kRelu) drawn.threshold = 0;
  if (sums != nullptr) std::fill(sums, sums + width, 0.0f);
  for (int64_t row = first; row < last; ++row) {
    const int64_t offset = row * width;
    ForEachVector(drawn, row, width, [&](int64_t i, int64_t n, VF s) HWY_ATTR {
      const VF dx = Gradient<kActivation>(key, g, offset, i, n, s);
      if (sums != nullptr) {
        StoreN(hn::Add(LoadN(sums + i, n), dx), sums + i, n);
      }
      if (g.grad_x != nullptr) StoreN(dx, g.grad_x + offset + i, n);
    });
  }
}

static void BackwardRows(Nonlinearity activation, const DropoutKey& key,
                         int64_t first, int64_t last, int64_t width,
                         const BiasActivationGradients& g, float* sums) {
  switch (activation) {
    case Nonlinearity::kIdentity:
      return BackwardRowsOf<Nonlinearity::kIdentity>(key, first, last, width, g,
                                                     sums);
    case Nonlinearity::kRelu:
      return BackwardRowsOf<Nonlinearity::kRelu>(key, first, last, width, g,
                                                 sums);
    case Nonlinearity::kGelu:
      return BackwardRowsOf<Nonlinearity::kGelu>(key, first, last, width, g,
                                                 sums);
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
    throw ShapeError("bias_activation: x", "sizes of at least 0",
                     ShapeText({rows, width}));
  }
}

void WantData(const char* name, const void* data, int64_t rows, int64_t width) {
  if (data == nullptr && rows > 0 && width > 0) {
    throw ArgumentError(StrCat("bias_activation: ", name), "data",
                        "a null pointer");
  }
}

}  // namespace

void BiasActivationForward(const BiasActivationOptions& options, int64_t rows,
                           int64_t width, const float* x, const float* bias,
                           float* y, Executor& executor) {
  const DropoutKey key = MakeDropoutKey(options.dropout);
  WantSizes(rows, width);
  WantData("x", x, rows, width);
  WantData("y", y, rows, width);
  const auto kernel = HWY_DYNAMIC_DISPATCH(ForwardRows);
  const RowTasks tasks(rows);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    const int64_t begin = tasks.begin(task);
    kernel(options.activation, key, begin, tasks.end(task), width,
           x + begin * width, bias, y + begin * width);
  });
}

void BiasActivationForwardRows(const BiasActivationOptions& options,
                               int64_t begin, int64_t end, int64_t width,
                               const float* x, const float* bias, float* y) {
  HWY_DYNAMIC_DISPATCH(ForwardRows)
  (options.activation, MakeDropoutKey(options.dropout), begin, end, width, x,
   bias, y);
}

int64_t BiasActivationWorkspaceFloats(int64_t rows, int64_t width) {
  return RowTasks(rows).count() * width;
}

void BiasActivationBackward(const BiasActivationOptions& options, int64_t rows,
                            int64_t width, const BiasActivationGradients& g,
                            float* workspace, Executor& executor) {
  const DropoutKey key = MakeDropoutKey(options.dropout);
  WantSizes(rows, width);
  WantData("grad_y", g.grad_y, rows, width);
  if (options.activation == Nonlinearity::kRelu) {
    WantData("y", g.y, rows, width);
  }
  if (options.activation == Nonlinearity::kGelu) {
    WantData("x", g.x, rows, width);
  }
  const bool summed = g.grad_bias != nullptr;
  if (summed) WantData("workspace", workspace, rows, width);
  const auto kernel = HWY_DYNAMIC_DISPATCH(BackwardRows);
  const RowTasks tasks(rows);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(options.activation, key, tasks.begin(task), tasks.end(task), width,
           g, summed ? workspace + task * width : nullptr);
  });
  if (summed) tasks.AddUp(workspace, width, width, g.grad_bias);
}

void BiasActivationBackwardRows(const BiasActivationOptions& options,
                                int64_t begin, int64_t end, int64_t width,
                                const BiasActivationGradients& g, float* sums) {
  HWY_DYNAMIC_DISPATCH(BackwardRows)
  (options.activation, MakeDropoutKey(options.dropout), begin, end, width, g,
   sums);
}

}  // namespace tarn
#endif  // HWY_ONCE
