// Each row takes one lane: sums over components need no sum over lanes, and any
// K fills the vectors. Components are read by gathers, 3 K floats apart.
#include "kernels/logistic_mixture/logistic_mixture.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/error.h"
#include "kernels/row_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/logistic_mixture/logistic_mixture.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

using VI = hn::Vec<DI>;
using MF = hn::Mask<DF>;

constexpr float kHalfBin = 1.0f / 255;
constexpr float kMinLogScale = -7.0f;
constexpr float kThreshold = 1e-5f;
constexpr float kLogThreshold = -11.512925465f;  // ln 1e-5
constexpr float kLogHalfRange = 4.848116346f;    // ln 127.5
constexpr float kFarthest = 1e30f;  // its product with e^7 is finite

// softplus(x) = ln(1 + e^x), sig(x) and sig(-x) from one exponential.
struct Logistic {
  VF softplus, sig, sig_minus;
};

HWY_INLINE Logistic LogisticAt(VF x) {
  const DF d;
  const VF zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  const VF e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const VF large = hn::Div(one, hn::Add(one, e));  // sig(|x|)
  const VF small = hn::Mul(e, large);
  const MF positive = hn::Gt(x, zero);
  return {hn::Add(hn::Max(x, zero), hn::Log1p(d, e)),
          hn::IfThenElse(positive, large, small),
          hn::IfThenElse(positive, small, large)};
}

// ln p of one component, its slopes in mu (times s) and in t.
struct Component {
  VF log_p, mean_slope, scale_slope, inverse_scale;
};

// y: the targets; low, high: bytes 0 and 255.
HWY_INLINE Component ComponentAt(VF y, MF low, MF high, VF mean, VF log_scale) {
  const DF d;
  const VF zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  const VF far = hn::Set(d, kFarthest);
  const MF clamped = hn::Lt(log_scale, hn::Set(d, kMinLogScale));
  const VF t = hn::IfThenElse(clamped, hn::Set(d, kMinLogScale), log_scale);
  const VF inverse = hn::Exp(d, hn::Neg(t));
  const VF centered = hn::Min(hn::Max(hn::Sub(y, mean), hn::Neg(far)), far);
  const VF half = hn::Set(d, kHalfBin);
  const VF a = hn::Mul(hn::Add(centered, half), inverse);
  const VF b = hn::Mul(hn::Sub(centered, half), inverse);
  const Logistic above = LogisticAt(hn::Neg(a));
  const Logistic below = LogisticAt(b);
  // Within the byte: w = a - b, 1 - e^-w.
  const VF w = hn::Mul(hn::Set(d, 2 * kHalfBin), inverse);
  const VF width = hn::Neg(hn::Expm1(d, hn::Neg(w)));
  const MF edge = hn::Or(low, high);
  // Bytes at an end lack the tail on that side, and the width.
  const VF tail_above = hn::IfThenZeroElse(high, above.softplus);
  const VF tail_below = hn::IfThenZeroElse(low, below.softplus);
  const VF slope_above = hn::IfThenZeroElse(high, above.sig);
  const VF slope_below = hn::IfThenZeroElse(low, below.sig);
  VF log_p = hn::Sub(hn::IfThenZeroElse(edge, hn::Log(d, width)),
                     hn::Add(tail_above, tail_below));
  VF mean_slope = hn::Sub(slope_below, slope_above);
  // w / (e^w - 1)
  const VF narrowing =
      hn::IfThenZeroElse(edge, hn::Div(hn::Mul(w, hn::Sub(one, width)), width));
  VF scale_slope = hn::Sub(
      hn::Sub(hn::Mul(b, slope_below), hn::Mul(a, slope_above)), narrowing);

  // p <= w, so a small w decides too: the logarithm of 0 is not finite.
  const MF likely = hn::And(hn::Gt(log_p, hn::Set(d, kLogThreshold)),
                            hn::Gt(w, hn::Set(d, kThreshold)));
  const MF density = hn::Not(hn::Or(likely, edge));
  if (HWY_UNLIKELY(!hn::AllFalse(d, density))) {
    const VF middle = hn::Mul(centered, inverse);
    const Logistic at = LogisticAt(middle);
    const VF log_density =
        hn::Sub(hn::Sub(middle, hn::Add(t, hn::Set(d, kLogHalfRange))),
                hn::Mul(hn::Set(d, 2.0f), at.softplus));
    const VF lean = hn::Sub(at.sig, at.sig_minus);
    log_p = hn::IfThenElse(density, log_density, log_p);
    mean_slope = hn::IfThenElse(density, lean, mean_slope);
    scale_slope =
        hn::IfThenElse(density, hn::MulSub(middle, lean, one), scale_slope);
  }
  return {log_p, mean_slope, hn::IfThenElse(clamped, zero, scale_slope),
          inverse};
}

// ln sum exp of the values seen so far, as sum * exp(largest).
struct LogSum {
  VF largest, sum;

  HWY_INLINE void Add(VF x) {
    const DF d;
    const MF larger = hn::Gt(x, largest);
    // e^-|x - largest|: of a first value, and of -inf after -inf, 0.
    const VF e = hn::Exp(d, hn::Neg(hn::Abs(hn::Sub(x, largest))));
    sum = hn::IfThenElse(larger, hn::MulAdd(sum, e, hn::Set(d, 1.0f)),
                         hn::Add(sum, e));
    largest = hn::IfThenElse(larger, x, largest);
  }
  HWY_INLINE VF Log() const { return hn::Add(largest, hn::Log(DF(), sum)); }
};

// The rows that the lanes work on. After the last row, lanes repeat it: they
// compute and write what is there already.
struct Lanes {
  const float* params;
  float* gradients;
  VI offsets;  // of the lanes' rows, in floats

  HWY_INLINE VF Load(int64_t column) const {
    return hn::GatherIndex(DF(), params + column, offsets);
  }
  HWY_INLINE VF LoadGradient(int64_t column) const {
    return hn::GatherIndex(DF(), gradients + column, offsets);
  }
  HWY_INLINE void StoreGradient(int64_t column, VF x) const {
    hn::ScatterIndex(x, DF(), gradients + column, offsets);
  }
};

// What the first pass learns about the lanes' rows.
struct Sums {
  LogSum logits, joint;
  VF bad;  // NaN where a row holds an invalid value, else 0
};

// Stores, if gradients are wanted, ln p_k and its slopes in their place.
HWY_INLINE Sums SumComponents(const Lanes& lanes, int64_t k, VF y, MF low,
                              MF high) {
  const DF d;
  const VF infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const VF nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  const LogSum nothing = {hn::Neg(infinity), hn::Zero(d)};
  Sums sums = {nothing, nothing, hn::Zero(d)};
  for (int64_t i = 0; i < k; ++i) {
    const VF logit = lanes.Load(i);
    const VF mean = lanes.Load(k + i);
    const VF log_scale = lanes.Load(2 * k + i);
    const MF good =
        hn::And(hn::And(hn::Lt(logit, infinity), hn::Lt(log_scale, infinity)),
                hn::Lt(hn::Abs(mean), infinity));
    sums.bad = hn::IfThenElse(good, sums.bad, nan);
    const Component c = ComponentAt(y, low, high, mean, log_scale);
    sums.logits.Add(logit);
    sums.joint.Add(hn::Add(logit, c.log_p));
    if (lanes.gradients == nullptr) continue;
    lanes.StoreGradient(i, c.log_p);
    lanes.StoreGradient(k + i, hn::Mul(c.mean_slope, c.inverse_scale));
    lanes.StoreGradient(2 * k + i, c.scale_slope);
  }
  // A row in which no component has a weight is invalid.
  sums.bad = hn::IfThenElse(hn::Gt(sums.logits.largest, hn::Neg(infinity)),
                            sums.bad, nan);
  return sums;
}

HWY_INLINE void WriteGradients(const Lanes& lanes, int64_t k, const Sums& sums,
                               VF weight) {
  const DF d;
  const VF log_weights = sums.logits.Log(), log_joint = sums.joint.Log();
  const MF masked = hn::Eq(weight, hn::Zero(d));
  const auto store = [&](int64_t column, VF x) HWY_ATTR {
    lanes.StoreGradient(
        column, hn::IfThenZeroElse(masked, hn::MulAdd(x, weight, sums.bad)));
  };
  for (int64_t i = 0; i < k; ++i) {
    const VF logit = lanes.Load(i);
    const VF share = hn::Exp(d, hn::Sub(logit, log_weights));
    const VF joint = hn::Add(logit, lanes.LoadGradient(i));
    const VF posterior = hn::Exp(d, hn::Sub(joint, log_joint));
    const VF minus = hn::Neg(posterior);
    store(i, hn::Sub(share, posterior));
    store(k + i, hn::Mul(minus, lanes.LoadGradient(k + i)));
    store(2 * k + i, hn::Mul(minus, lanes.LoadGradient(2 * k + i)));
  }
}

static void LossOfRows(const LogisticMixtureArgs& args, int64_t first,
                       int64_t last) {
  const DF d;
  const DI di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t k = args.n_mixtures;
  for (int64_t row = first; row < last; row += lanes) {
    const int64_t count = std::min(lanes, last - row);
    HWY_ALIGN float y[kRowPad], weight[kRowPad], loss[kRowPad];
    HWY_ALIGN int32_t offset[kRowPad];
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const int64_t at = std::min(lane, count - 1);
      // 255 and 0 give exactly 1 and -1, other bytes round once.
      y[lane] = static_cast<float>(2 * args.targets[row + at] - 255) / 255.0f;
      weight[lane] = args.weights == nullptr ? 1.0f : args.weights[row + at];
      offset[lane] = static_cast<int32_t>(at * 3 * k);
    }
    const int64_t begin = row * 3 * k;
    const Lanes rows = {
        args.params + begin,
        args.gradients == nullptr ? nullptr : args.gradients + begin,
        hn::Load(di, offset)};
    const VF targets = hn::Load(d, y);
    const Sums sums =
        SumComponents(rows, k, targets, hn::Lt(targets, hn::Set(d, -0.999f)),
                      hn::Gt(targets, hn::Set(d, 0.999f)));
    if (args.losses != nullptr) {
      hn::Store(hn::Add(hn::Sub(sums.logits.Log(), sums.joint.Log()), sums.bad),
                d, loss);
      std::copy_n(loss, count, args.losses + row);
    }
    if (args.gradients != nullptr) {
      WriteGradients(rows, k, sums, hn::Load(d, weight));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(LossOfRows);

// Offsets of 16 rows of parameters fit into 32 bits.
constexpr int64_t kMaxMixtures = int64_t{1} << 20;

void WantData(const char* name, const void* data, int64_t rows) {
  if (data == nullptr && rows > 0) {
    throw ArgumentError(StrCat("logistic_mixture: ", name), "data",
                        "a null pointer");
  }
}

}  // namespace

void LogisticMixtureLoss(const LogisticMixtureArgs& args, Executor& executor) {
  if (args.rows < 0) {
    throw ShapeError("logistic_mixture: rows", "at least 0", StrCat(args.rows));
  }
  if (args.n_mixtures < 1 || args.n_mixtures > kMaxMixtures) {
    throw ShapeError("logistic_mixture: n_mixtures",
                     StrCat("1 to ", kMaxMixtures), StrCat(args.n_mixtures));
  }
  WantData("params", args.params, args.rows);
  WantData("targets", args.targets, args.rows);
  if (args.gradients != nullptr && args.gradients == args.params) {
    throw ArgumentError("logistic_mixture: gradients", "separate memory",
                        "the parameters");
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(LossOfRows);
  const RowTasks tasks(args.rows);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(args, tasks.begin(task), tasks.end(task));
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
