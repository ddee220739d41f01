// A row is read twice forward, once for its largest entry and once for the sum,
// and once for the gradient; after the first time it is in cache.
#include "kernels/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy/cross_entropy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/gate_rows/gate_rows-inl.h"
#include "kernels/panels-inl.h"
#include "kernels/pieces-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// How an entry becomes z.
struct LogitMap {
  VF scale, inner, cap;

  explicit LogitMap(const CrossEntropyOptions& options)
      : scale(hn::Set(DF(), static_cast<float>(options.scale))),
        inner(hn::Set(DF(),
                      static_cast<float>(
                          options.cap == 0 ? 1 : options.scale / options.cap))),
        cap(hn::Set(DF(), static_cast<float>(options.cap))) {}
};

template <bool kCapped>
HWY_INLINE VF LogitOf(const LogitMap& map, VF x) {
  if constexpr (kCapped) return hn::Mul(map.cap, TanhOf(hn::Mul(x, map.inner)));
  return hn::Mul(x, map.scale);
}

// The largest entry, or the smallest: NaN may be lost, the sum finds it again.
template <DType kType>
static HWY_INLINE VF Extreme(const char* x, int64_t count, bool largest) {
  const DF d;
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF flip = hn::Set(d, largest ? 1.0f : -1.0f);
  const VF none = hn::Set(d, -std::numeric_limits<float>::infinity());
  VF best = none, second = none;
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    best = hn::Max(hn::Mul(flip, LoadWhole<kType>(x + i * kBytes)), best);
    second = hn::Max(hn::Mul(flip, LoadWhole<kType>(x + (i + lanes) * kBytes)),
                     second);
  }
  for (; i < count; i += lanes) {
    const int64_t n = count - i;
    VF v = hn::Mul(flip, LoadPiece<kType>(x + i * kBytes, n));
    if (n < lanes) {
      v = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(n)), v, none);
    }
    best = hn::Max(v, best);
  }
  best = hn::MaxOfLanes(d, hn::Max(best, second));
  return hn::Mul(flip, best);
}

// Sums over a row, of the exponentials and of the entries less the largest.
struct LogitSums {
  float exponentials, entries;
};

// Vectors of a run: runs are summed by themselves, so that a sum over many
// classes keeps its digits.
constexpr int64_t kVectorsOfRun = 128;

template <DType kType, bool kCapped>
static HWY_INLINE LogitSums SumsOf(const LogitMap& map, const char* x,
                                   int64_t count, VF largest) {
  const DF d;
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF sum = hn::Zero(d), total = hn::Zero(d);
  for (int64_t i = 0; i < count;) {
    const int64_t end = std::min(count, i + kVectorsOfRun * lanes);
    VF run = hn::Zero(d), entries = hn::Zero(d);
    for (; i < end; i += lanes) {
      const int64_t n = count - i;
      const VF z = LogitOf<kCapped>(map, LoadPiece<kType>(x + i * kBytes, n));
      VF less = hn::Sub(z, largest);
      VF e = ExpOfLane(less);
      if (HWY_UNLIKELY(n < lanes)) {
        less = KeepFirst(less, n);
        e = KeepFirst(e, n);
      }
      run = hn::Add(run, e);
      entries = hn::Add(entries, less);
    }
    sum = hn::Add(sum, run);
    total = hn::Add(total, entries);
  }
  return {hn::GetLane(hn::SumOfLanes(d, sum)),
          hn::GetLane(hn::SumOfLanes(d, total))};
}

template <DType kType, bool kCapped>
static HWY_INLINE void LossRow(const CrossEntropyOptions& options,
                               const LogitMap& map, const char* x,
                               int64_t count, int64_t target, float* loss,
                               float* squares, float* moments) {
  const VF at =
      LoadPiece<kType>(x + target * static_cast<int64_t>(DTypeBytes(kType)), 1);
  const VF largest =
      LogitOf<kCapped>(map, Extreme<kType>(x, count, options.scale >= 0));
  const LogitSums sums = SumsOf<kType, kCapped>(map, x, count, largest);
  const float most = hn::GetLane(largest);
  const float own = hn::GetLane(hn::Sub(LogitOf<kCapped>(map, at), largest));
  const float log_sum = std::log(sums.exponentials);
  const float lse = most + log_sum;
  const float e = static_cast<float>(options.smoothing);
  float value = log_sum - own;
  if (e != 0) {
    const float mean = sums.entries / static_cast<float>(count);
    value = (1 - e) * value + e * (log_sum - mean);
  }
  const float q = static_cast<float>(options.square_scale);
  *squares = q == 0 ? 0 : q * lse * lse;
  *loss = value + *squares;
  moments[0] = most;
  moments[1] = log_sum;
}

template <DType kType, bool kCapped>
static HWY_INLINE void GradientRow(const CrossEntropyOptions& options,
                                   const LogitMap& map, const char* x,
                                   int64_t count, int64_t target,
                                   const float* moments, float grad,
                                   char* out) {
  const DF d;
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float e = static_cast<float>(options.smoothing);
  const float q = static_cast<float>(options.square_scale);
  const float outer = q == 0 ? 1 : 1 + 2 * q * (moments[0] + moments[1]);
  const VF largest = hn::Set(d, moments[0]), rest = hn::Set(d, moments[1]);
  const VF flow = hn::Set(d, grad * static_cast<float>(options.scale));
  const VF factor = hn::Set(d, outer);
  const VF even = hn::Set(d, e / static_cast<float>(count));
  const VF inverse =
      hn::Set(d, kCapped ? 1 / static_cast<float>(options.cap) : 0.0f);
  const auto slope = [&](VF z) HWY_ATTR {
    if constexpr (!kCapped) return flow;
    const VF t = hn::Mul(z, inverse), one = hn::Set(d, 1.0f);
    return hn::Mul(flow, hn::Mul(hn::Sub(one, t), hn::Add(one, t)));
  };
  const auto excess = [&](VF z) HWY_ATTR {
    const VF p = ExpOfLane(hn::Sub(hn::Sub(z, largest), rest));
    return hn::MulSub(factor, p, even);
  };
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t n = count - i;
    const VF z = LogitOf<kCapped>(map, LoadPiece<kType>(x + i * kBytes, n));
    StorePiece<kType>(hn::Mul(excess(z), slope(z)), out + i * kBytes, n);
  }
  const VF z = LogitOf<kCapped>(map, LoadPiece<kType>(x + target * kBytes, 1));
  const VF own = hn::Sub(excess(z), hn::Set(d, 1 - e));
  StorePiece<kType>(hn::Mul(own, slope(z)), out + target * kBytes, 1);
}

static void LossRows(const CrossEntropyOptions& options,
                     const CrossEntropyInputs& in, float* losses,
                     float* squares, float* moments, int64_t begin,
                     int64_t end) {
  const LogitMap map(options);
  WithDType(in.dtype, [&](auto type) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    const auto run = [&](auto capped) HWY_ATTR {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t target = in.targets[row];
        if (target == options.ignored) {
          losses[row] = squares[row] = 0;
          moments[2 * row] = moments[2 * row + 1] = 0;
          continue;
        }
        LossRow<kType, decltype(capped)::value>(
            options, map,
            static_cast<const char*>(in.logits) +
                row * in.stride * static_cast<int64_t>(DTypeBytes(kType)),
            in.classes, target, losses + row, squares + row, moments + 2 * row);
      }
    };
    if (options.cap != 0) return run(std::true_type());
    run(std::false_type());
  });
}

static void GradientRows(const CrossEntropyOptions& options,
                         const CrossEntropyInputs& in, const float* moments,
                         const float* grad_losses, char* grad_logits,
                         int64_t begin, int64_t end) {
  const LogitMap map(options);
  WithDType(in.dtype, [&](auto type) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
    const auto run = [&](auto capped) HWY_ATTR {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t target = in.targets[row];
        char* out = grad_logits + row * in.classes * kBytes;
        if (target == options.ignored) {
          std::fill(out, out + in.classes * kBytes, 0);
          continue;
        }
        GradientRow<kType, decltype(capped)::value>(
            options, map,
            static_cast<const char*>(in.logits) + row * in.stride * kBytes,
            in.classes, target, moments + 2 * row, grad_losses[row], out);
      }
    };
    if (options.cap != 0) return run(std::true_type());
    run(std::false_type());
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(LossRows);
HWY_EXPORT(GradientRows);

void WantLossData(const char* name, const void* data, int64_t rows) {
  if (data == nullptr && rows > 0) {
    throw ArgumentError(StrCat("cross_entropy: ", name), "data",
                        "a null pointer");
  }
}

void CheckCrossEntropy(const CrossEntropyOptions& options,
                       const CrossEntropyInputs& in) {
  if (in.rows < 0 || in.classes < 1) {
    throw ShapeError("cross_entropy: logits",
                     "[rows, classes], 1 class or more",
                     ShapeText({in.rows, in.classes}));
  }
  WantLossData("logits", in.logits, in.rows);
  WantLossData("targets", in.targets, in.rows);
  for (int64_t row = 0; row < in.rows; ++row) {
    const int64_t target = in.targets[row];
    if (target == options.ignored || (target >= 0 && target < in.classes)) {
      continue;
    }
    throw ArgumentError(
        StrCat("cross_entropy: target[", row, "]"),
        StrCat("0 to ", in.classes - 1, " or ", options.ignored),
        StrCat(target));
  }
}

// Rows of a task: 16,384 entries or more, some microseconds.
int64_t LossRowsOfTask(const CrossEntropyInputs& in) {
  return (16383 + in.classes) / in.classes;
}

// f(begin, end) for the rows of each task.
template <typename F>
void ForLossRows(const CrossEntropyInputs& in, Executor& executor, const F& f) {
  const int64_t share = LossRowsOfTask(in);
  executor.ParallelFor((in.rows + share - 1) / share, [&](int64_t task, int) {
    f(task * share, std::min(in.rows, (task + 1) * share));
  });
}

}  // namespace

void CrossEntropyForward(const CrossEntropyOptions& options,
                         const CrossEntropyInputs& in, float* losses,
                         float* squares, float* moments, Executor& executor) {
  CheckCrossEntropy(options, in);
  WantLossData("losses", losses, in.rows);
  WantLossData("squares", squares, in.rows);
  WantLossData("moments", moments, in.rows);
  const auto kernel = HWY_DYNAMIC_DISPATCH(LossRows);
  ForLossRows(in, executor, [&](int64_t begin, int64_t end) {
    kernel(options, in, losses, squares, moments, begin, end);
  });
}

void CrossEntropyBackward(const CrossEntropyOptions& options,
                          const CrossEntropyInputs& in, const float* moments,
                          const float* grad_losses, void* grad_logits,
                          Executor& executor) {
  CheckCrossEntropy(options, in);
  WantLossData("moments", moments, in.rows);
  WantLossData("grad_losses", grad_losses, in.rows);
  WantLossData("grad_logits", grad_logits, in.rows);
  const auto kernel = HWY_DYNAMIC_DISPATCH(GradientRows);
  ForLossRows(in, executor, [&](int64_t begin, int64_t end) {
    kernel(options, in, moments, grad_losses, static_cast<char*>(grad_logits),
           begin, end);
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
