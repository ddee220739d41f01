// A row and the one next to it give a row of the result; the gradient of x is
// the same function of the gradients' rows, with the row after in place of the
// row before.
#include "kernels/token_shift/token_shift.h"

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "kernels/row_tasks.h"
#include "kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/token_shift/token_shift.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/panels-inl.h"
#include "kernels/pieces-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// f(column, first byte, columns left) for a row vector by vector.
template <DType kType, class F>
static HWY_INLINE void ForShiftVectors(int64_t width, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  for (int64_t i = 0; i < width; i += lanes) f(i, i * kBytes, width - i);
}

// The product is rounded by itself: so a row's bits are those of the runtime
// on every target.
static HWY_INLINE VF MixedWith(VF x, VF other, VF weight) {
  return hn::Add(x, hn::Mul(weight, hn::Sub(other, x)));
}

// other: the row next to x, null: zeros.
template <DType kType>
static HWY_INLINE void MixWithRow(const char* x, const char* other,
                                  const float* weight, int64_t width, char* y) {
  const VF none = hn::Zero(DF());
  const auto next = [&](int64_t at, int64_t n) HWY_ATTR {
    return other == nullptr ? none : LoadPiece<kType>(other + at, n);
  };
  if (weight == nullptr) {
    return ForShiftVectors<kType>(
        width, [&](int64_t, int64_t at, int64_t n) HWY_ATTR {
          StorePiece<kType>(hn::Sub(next(at, n), LoadPiece<kType>(x + at, n)),
                            y + at, n);
        });
  }
  ForShiftVectors<kType>(width, [&](int64_t i, int64_t at, int64_t n) HWY_ATTR {
    StorePiece<kType>(MixedWith(LoadPiece<kType>(x + at, n), next(at, n),
                                LoadPiece<DType::kF32>(weight + i, n)),
                      y + at, n);
  });
}

// f(row, its sequence, whether it is the first one there, the last one).
template <class F>
static void ForShiftRows(const TokenShiftCall& call, int64_t begin, int64_t end,
                         const F& f) {
  if (call.bounds == nullptr) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row % call.seq_len;
      f(row, row / call.seq_len, at == 0, at + 1 == call.seq_len);
    }
    return;
  }
  const int64_t* const bounds = call.bounds;
  int64_t s =
      std::upper_bound(bounds, bounds + call.sequences, begin) - bounds - 1;
  for (int64_t row = begin; row < end; ++row) {
    while (row >= bounds[s + 1]) ++s;  // past empty sequences too
    f(row, s, row == bounds[s], row + 1 == bounds[s + 1]);
  }
}

template <DType kType>
static HWY_INLINE const char* ShiftBefore(const TokenShiftCall& call,
                                          int64_t row, int64_t sequence,
                                          bool first) {
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  if (!first) {
    return static_cast<const char*>(call.x) + (row - 1) * call.stride * kBytes;
  }
  if (call.before == nullptr) return nullptr;
  return static_cast<const char*>(call.before) + sequence * call.width * kBytes;
}

static void ShiftTokens(const TokenShiftCall& call, char* y, int64_t begin,
                        int64_t end) {
  WithDType(call.dtype, [&](auto type) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
    ForShiftRows(
        call, begin, end,
        [&](int64_t row, int64_t sequence, bool first, bool) HWY_ATTR {
          MixWithRow<kType>(
              static_cast<const char*>(call.x) + row * call.stride * kBytes,
              ShiftBefore<kType>(call, row, sequence, first), call.weight,
              call.width, y + row * call.width * kBytes);
        });
  });
}

// sums += dy (x' - x).
template <DType kType>
static HWY_INLINE void AddShiftSlopes(const char* grad_y, const char* x,
                                      const char* before, int64_t width,
                                      float* sums) {
  const VF none = hn::Zero(DF());
  ForShiftVectors<kType>(width, [&](int64_t i, int64_t at, int64_t n) HWY_ATTR {
    const VF other =
        before == nullptr ? none : LoadPiece<kType>(before + at, n);
    const VF change = hn::Sub(other, LoadPiece<kType>(x + at, n));
    const VF sum = LoadPiece<DType::kF32>(sums + i, n);
    StorePiece<DType::kF32>(
        hn::MulAdd(LoadPiece<kType>(grad_y + at, n), change, sum), sums + i, n);
  });
}

// sums: [width], set here; null: not wanted.
static void ShiftTokensBack(const TokenShiftCall& call,
                            const TokenShiftGradients& g, int64_t begin,
                            int64_t end, float* sums) {
  if (sums != nullptr) std::fill(sums, sums + call.width, 0.0f);
  WithDType(call.dtype, [&](auto type) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
    const int64_t bytes = call.width * kBytes;
    const char* grad_y = static_cast<const char*>(g.grad_y);
    ForShiftRows(
        call, begin, end,
        [&](int64_t row, int64_t sequence, bool first, bool last) HWY_ATTR {
          const char* flow = grad_y + row * bytes;
          MixWithRow<kType>(flow, last ? nullptr : flow + bytes, call.weight,
                            call.width,
                            static_cast<char*>(g.grad_x) + row * bytes);
          if (sums != nullptr) {
            AddShiftSlopes<kType>(
                flow,
                static_cast<const char*>(call.x) + row * call.stride * kBytes,
                ShiftBefore<kType>(call, row, sequence, first), call.width,
                sums);
          }
          if (!first || g.grad_before == nullptr) return;
          char* to = static_cast<char*>(g.grad_before) + sequence * bytes;
          ForShiftVectors<kType>(call.width, [&](int64_t i, int64_t at,
                                                 int64_t n) HWY_ATTR {
            VF back = LoadPiece<kType>(flow + at, n);
            if (call.weight != nullptr) {
              back = hn::Mul(back, LoadPiece<DType::kF32>(call.weight + i, n));
            }
            StorePiece<kType>(back, to + at, n);
          });
        });
  });
}

static void MixFloatRow(const float* x, const float* before,
                        const float* weight, int64_t width, float* y) {
  MixWithRow<DType::kF32>(reinterpret_cast<const char*>(x),
                          reinterpret_cast<const char*>(before), weight, width,
                          reinterpret_cast<char*>(y));
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(ShiftTokens);
HWY_EXPORT(ShiftTokensBack);
HWY_EXPORT(MixFloatRow);

void WantShiftData(const TokenShiftCall& call, const char* name,
                   const void* data) {
  if (data == nullptr && call.rows() > 0 && call.width > 0) {
    throw ArgumentError(StrCat("token_shift: ", name), "data",
                        "a null pointer");
  }
}

void CheckTokenShift(const TokenShiftCall& call) {
  if (call.sequences < 0 || call.seq_len < 0 || call.width < 0) {
    throw ShapeError("token_shift: x", "sizes of at least 0",
                     ShapeText({call.sequences, call.seq_len, call.width}));
  }
  WantShiftData(call, "x", call.x);
}

// Only sums bound the number of tasks.
WideRowTasks ShiftTasks(const TokenShiftCall& call, bool sums) {
  const int64_t rows = call.rows();
  return {rows, call.width, sums ? 64 : std::max<int64_t>(rows, 1)};
}

}  // namespace

void TokenShiftForward(const TokenShiftCall& call, void* y,
                       Executor& executor) {
  CheckTokenShift(call);
  WantShiftData(call, "y", y);
  const auto kernel = HWY_DYNAMIC_DISPATCH(ShiftTokens);
  const WideRowTasks tasks = ShiftTasks(call, false);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, static_cast<char*>(y), tasks.begin(task), tasks.end(task));
  });
}

size_t TokenShiftGradientBytes(const TokenShiftCall& call, bool grad_weight) {
  if (!grad_weight) return 0;
  return static_cast<size_t>(ShiftTasks(call, true).count() *
                             PadRow(call.width)) *
         sizeof(float);
}

void TokenShiftBackward(const TokenShiftCall& call,
                        const TokenShiftGradients& g, Executor& executor,
                        void* workspace) {
  CheckTokenShift(call);
  WantShiftData(call, "grad_y", g.grad_y);
  WantShiftData(call, "grad_x", g.grad_x);
  const bool summed = g.grad_weight != nullptr;
  float* sums = summed ? static_cast<float*>(workspace) : nullptr;
  if (g.grad_before != nullptr) {  // empty sequences have no first row
    char* to = static_cast<char*>(g.grad_before);
    std::fill(to,
              to + call.sequences * call.width *
                       static_cast<int64_t>(DTypeBytes(call.dtype)),
              0);
  }
  const int64_t stride = PadRow(call.width);
  const auto kernel = HWY_DYNAMIC_DISPATCH(ShiftTokensBack);
  const WideRowTasks tasks = ShiftTasks(call, summed);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, g, tasks.begin(task), tasks.end(task),
           summed ? sums + task * stride : nullptr);
  });
  if (summed) {
    AddUpTasks(tasks.count(), sums, stride, call.width, g.grad_weight);
  }
}

void ShiftedRow(const float* x, const float* before, const float* weight,
                int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(MixFloatRow)(x, before, weight, width, y);
}

}  // namespace tarn
#endif  // HWY_ONCE
