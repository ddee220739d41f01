#include "kernels/unit_norm/unit_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/error.h"
#include "kernels/row_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/unit_norm/unit_norm.cc"
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
static HWY_INLINE void ForUnitVectors(int64_t width, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  for (int64_t i = 0; i < width; i += lanes) f(i * kBytes, width - i);
}

static HWY_INLINE float InverseLength(VF squares, float eps) {
  const float sum = hn::GetLane(hn::SumOfLanes(DF(), squares));
  return 1.0f / std::sqrt(sum + eps);
}

template <DType kType>
static HWY_INLINE void UnitHead(const char* x, int64_t width, float eps,
                                char* y) {
  VF squares = hn::Zero(DF());
  ForUnitVectors<kType>(width, [&](int64_t at, int64_t n) HWY_ATTR {
    const VF v = LoadPiece<kType>(x + at, n);
    squares = hn::MulAdd(v, v, squares);
  });
  const VF inverse = hn::Set(DF(), InverseLength(squares, eps));
  ForUnitVectors<kType>(width, [&](int64_t at, int64_t n) HWY_ATTR {
    StorePiece<kType>(hn::Mul(LoadPiece<kType>(x + at, n), inverse), y + at, n);
  });
}

template <DType kType>
static HWY_INLINE void UnitHeadBack(const char* x, const char* grad_y,
                                    int64_t width, float eps, char* grad_x) {
  const DF d;
  VF squares = hn::Zero(d), products = hn::Zero(d);
  ForUnitVectors<kType>(width, [&](int64_t at, int64_t n) HWY_ATTR {
    const VF v = LoadPiece<kType>(x + at, n);
    squares = hn::MulAdd(v, v, squares);
    products = hn::MulAdd(v, LoadPiece<kType>(grad_y + at, n), products);
  });
  const float r = InverseLength(squares, eps);
  // r (dy - (r x) (r sum)): r^3 alone may be infinite.
  const float along = r * hn::GetLane(hn::SumOfLanes(d, products));
  const VF inverse = hn::Set(d, r), back = hn::Set(d, along);
  ForUnitVectors<kType>(width, [&](int64_t at, int64_t n) HWY_ATTR {
    const VF y = hn::Mul(LoadPiece<kType>(x + at, n), inverse);
    const VF flow = LoadPiece<kType>(grad_y + at, n);
    StorePiece<kType>(hn::Mul(inverse, hn::NegMulAdd(y, back, flow)),
                      grad_x + at, n);
  });
}

static void UnitRows(const UnitNormCall& call, char* y, int64_t begin,
                     int64_t end) {
  WithDType(call.dtype, [&](auto type) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
    const int64_t head = call.width * kBytes;
    for (int64_t row = begin; row < end; ++row) {
      const char* x =
          static_cast<const char*>(call.x) + row * call.stride * kBytes;
      char* to = y + row * call.heads * head;
      for (int64_t h = 0; h < call.heads; ++h) {
        UnitHead<kType>(x + h * head, call.width, call.eps, to + h * head);
      }
    }
  });
}

static void UnitRowsBack(const UnitNormCall& call, const char* grad_y,
                         char* grad_x, int64_t begin, int64_t end) {
  WithDType(call.dtype, [&](auto type) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
    const int64_t head = call.width * kBytes;
    for (int64_t row = begin; row < end; ++row) {
      const char* x =
          static_cast<const char*>(call.x) + row * call.stride * kBytes;
      const int64_t at = row * call.heads * head;
      for (int64_t h = 0; h < call.heads; ++h) {
        UnitHeadBack<kType>(x + h * head, grad_y + at + h * head, call.width,
                            call.eps, grad_x + at + h * head);
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

HWY_EXPORT(UnitRows);
HWY_EXPORT(UnitRowsBack);

void WantUnitData(const UnitNormCall& call, const char* name,
                  const void* data) {
  if (data == nullptr && call.rows * call.heads * call.width > 0) {
    throw ArgumentError(StrCat("unit_norm: ", name), "data", "a null pointer");
  }
}

void CheckUnitNorm(const UnitNormCall& call) {
  if (call.rows < 0 || call.heads < 0 || call.width < 0) {
    throw ShapeError("unit_norm: x", "sizes of at least 0",
                     ShapeText({call.rows, call.heads, call.width}));
  }
  WantUnitData(call, "x", call.x);
}

WideRowTasks UnitTasks(const UnitNormCall& call) {
  return {call.rows, call.heads * call.width, std::max<int64_t>(call.rows, 1)};
}

}  // namespace

void UnitNormForward(const UnitNormCall& call, void* y, Executor& executor) {
  CheckUnitNorm(call);
  WantUnitData(call, "y", y);
  const auto kernel = HWY_DYNAMIC_DISPATCH(UnitRows);
  const WideRowTasks tasks = UnitTasks(call);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, static_cast<char*>(y), tasks.begin(task), tasks.end(task));
  });
}

void UnitNormBackward(const UnitNormCall& call, const void* grad_y,
                      void* grad_x, Executor& executor) {
  CheckUnitNorm(call);
  WantUnitData(call, "grad_y", grad_y);
  WantUnitData(call, "grad_x", grad_x);
  const auto kernel = HWY_DYNAMIC_DISPATCH(UnitRowsBack);
  const WideRowTasks tasks = UnitTasks(call);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, static_cast<const char*>(grad_y), static_cast<char*>(grad_x),
           tasks.begin(task), tasks.end(task));
  });
}

void UnitRow(int64_t heads, int64_t width, float eps, float* x) {
  const UnitNormCall call = {DType::kF32, 1, heads, width, x, 0, eps};
  HWY_DYNAMIC_DISPATCH(UnitRows)(call, reinterpret_cast<char*>(x), 0, 1);
}

}  // namespace tarn
#endif  // HWY_ONCE
