#include "kernels/head_scale/head_scale.h"

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "kernels/row_tasks.h"
#include "kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/head_scale/head_scale.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/panels-inl.h"
#include "kernels/pieces-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// f(first byte, entries left) for a row vector by vector.
template <DType kType, class F>
static HWY_INLINE void ForScaledVectors(int64_t width, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  for (int64_t i = 0; i < width; i += lanes) f(i * kBytes, width - i);
}

// The product is rounded by itself: so a row's bits are the same on every
// target.
template <DType kType>
static HWY_INLINE void ScaleHead(const char* values, float factor,
                                 const char* base, int64_t width, char* y) {
  const VF f = hn::Set(DF(), factor);
  if (base == nullptr) {
    return ForScaledVectors<kType>(width, [&](int64_t at, int64_t n) HWY_ATTR {
      StorePiece<kType>(hn::Mul(f, LoadPiece<kType>(values + at, n)), y + at,
                        n);
    });
  }
  ForScaledVectors<kType>(width, [&](int64_t at, int64_t n) HWY_ATTR {
    const VF product = hn::Mul(f, LoadPiece<kType>(values + at, n));
    StorePiece<kType>(hn::Add(LoadPiece<kType>(base + at, n), product), y + at,
                      n);
  });
}

static void ScaleRows(const HeadScaleCall& call, char* y, int64_t begin,
                      int64_t end) {
  WithDType(call.dtype, [&](auto type) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
    const int64_t head = call.width * kBytes;
    const char* base = static_cast<const char*>(call.base);
    for (int64_t row = begin; row < end; ++row) {
      const char* values =
          static_cast<const char*>(call.values) + row * call.stride * kBytes;
      const float* factors =
          call.factors + (call.shared ? 0 : row * call.heads);
      for (int64_t h = 0; h < call.heads; ++h) {
        const int64_t at = (row * call.heads + h) * head;
        ScaleHead<kType>(values + h * head, factors[h],
                         base == nullptr ? nullptr : base + at, call.width,
                         y + at);
      }
    }
  });
}

// grad_factors: of these rows, or sums over them, set here.
static void ScaleRowsBack(const HeadScaleCall& call, const char* grad_y,
                          char* grad_values, float* grad_factors, int64_t begin,
                          int64_t end) {
  if (call.shared) std::fill(grad_factors, grad_factors + call.heads, 0.0f);
  WithDType(call.dtype, [&](auto type) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
    const int64_t head = call.width * kBytes;
    for (int64_t row = begin; row < end; ++row) {
      const char* values =
          static_cast<const char*>(call.values) + row * call.stride * kBytes;
      const float* factors =
          call.factors + (call.shared ? 0 : row * call.heads);
      for (int64_t h = 0; h < call.heads; ++h) {
        const int64_t to = (row * call.heads + h) * head;
        const VF f = hn::Set(DF(), factors[h]);
        VF sum = hn::Zero(DF());
        ForScaledVectors<kType>(
            call.width, [&](int64_t at, int64_t n) HWY_ATTR {
              const VF flow = LoadPiece<kType>(grad_y + to + at, n);
              const VF v = LoadPiece<kType>(values + h * head + at, n);
              sum = hn::MulAdd(flow, v, sum);
              StorePiece<kType>(hn::Mul(f, flow), grad_values + to + at, n);
            });
        const float total = hn::GetLane(hn::SumOfLanes(DF(), sum));
        if (call.shared) {
          grad_factors[h] += total;
        } else {
          grad_factors[row * call.heads + h] = total;
        }
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(ScaleRows);
HWY_EXPORT(ScaleRowsBack);

void WantScaleData(const HeadScaleCall& call, const char* name,
                   const void* data) {
  if (data == nullptr && call.rows * call.heads * call.width > 0) {
    throw ArgumentError(StrCat("head_scale: ", name), "data", "a null pointer");
  }
}

void CheckHeadScale(const HeadScaleCall& call) {
  if (call.rows < 0 || call.heads < 0 || call.width < 0) {
    throw ShapeError("head_scale: values", "sizes of at least 0",
                     ShapeText({call.rows, call.heads, call.width}));
  }
  WantScaleData(call, "values", call.values);
  WantScaleData(call, "factors", call.factors);
}

// Tasks of heads without entries too: their gradients are zeros.
WideRowTasks ScaleTasks(const HeadScaleCall& call) {
  return {call.rows, call.heads * std::max<int64_t>(call.width, 1), 64};
}

}  // namespace

void HeadScaleForward(const HeadScaleCall& call, void* y, Executor& executor) {
  CheckHeadScale(call);
  WantScaleData(call, "y", y);
  const auto kernel = HWY_DYNAMIC_DISPATCH(ScaleRows);
  const WideRowTasks tasks = ScaleTasks(call);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, static_cast<char*>(y), tasks.begin(task), tasks.end(task));
  });
}

size_t HeadScaleGradientBytes(const HeadScaleCall& call) {
  if (!call.shared) return 0;
  return static_cast<size_t>(ScaleTasks(call).count() * PadRow(call.heads)) *
         sizeof(float);
}

void HeadScaleBackward(const HeadScaleCall& call, const void* grad_y,
                       void* grad_values, float* grad_factors,
                       Executor& executor, void* workspace) {
  CheckHeadScale(call);
  WantScaleData(call, "grad_y", grad_y);
  WantScaleData(call, "grad_values", grad_values);
  WantScaleData(call, "grad_factors", grad_factors);
  const auto kernel = HWY_DYNAMIC_DISPATCH(ScaleRowsBack);
  const WideRowTasks tasks = ScaleTasks(call);
  const int64_t stride = PadRow(call.heads);
  float* sums = static_cast<float*>(workspace);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, static_cast<const char*>(grad_y),
           static_cast<char*>(grad_values),
           call.shared ? sums + task * stride : grad_factors, tasks.begin(task),
           tasks.end(task));
  });
  if (call.shared) {
    AddUpTasks(tasks.count(), sums, stride, call.heads, grad_factors);
  }
}

void HeadScaleRow(int64_t heads, int64_t width, const float* values,
                  const float* factors, const float* base, float* y) {
  const HeadScaleCall call = {DType::kF32, 1,       heads, width, values,
                              0,           factors, true,  base};
  HWY_DYNAMIC_DISPATCH(ScaleRows)(call, reinterpret_cast<char*>(y), 0, 1);
}

}  // namespace tarn
#endif  // HWY_ONCE
