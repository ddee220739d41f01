// Forward pass. A row is read once for its statistics and once for its result;
// with the gate first, float32 rows keep x a(gate) in the result's place
// between the two, others make it again, with the same bits.
#include "kernels/gated_norm/gated_norm.h"

#include <cstdint>

#include "kernels/gated_norm/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gated_norm/gated_norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/gated_norm/gated_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

template <DType kType, GatePlace kGate, bool kCentred>
static HWY_INLINE void NormOneRow(const GatedNormOptions& options,
                                  const char* x, const char* gate,
                                  const float* weight, const float* bias,
                                  char* out) {
  const DF d;
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  constexpr bool kKept = kGate == GatePlace::kFirst && kType == DType::kF32;
  const bool silu = options.activation == NormGate::kSilu;
  const auto gate_at = [&](int64_t i, int64_t n) HWY_ATTR {
    return GateOf(LoadPiece<kType>(gate + i * kBytes, n), silu);
  };
  const auto normed = [&](int64_t i, int64_t n) HWY_ATTR {
    const VF v = LoadPiece<kType>(x + i * kBytes, n);
    if constexpr (kGate == GatePlace::kFirst) return hn::Mul(v, gate_at(i, n));
    return v;
  };
  const auto again = [&](int64_t i, int64_t n) HWY_ATTR {
    if constexpr (kKept) return LoadPiece<kType>(out + i * kBytes, n);
    return normed(i, n);
  };
  VF sum = hn::Zero(d);
  ForPieces(options.width, [&](int64_t i, int64_t n) HWY_ATTR {
    const VF u = normed(i, n);
    if constexpr (kKept) StorePiece<kType>(u, out + i * kBytes, n);
    sum = kCentred ? hn::Add(sum, u) : hn::MulAdd(u, u, sum);
  });
  const RowMoments moments = MomentsOf<kCentred>(options, sum, again);
  ForPieces(options.width, [&](int64_t i, int64_t n) HWY_ATTR {
    const VF normal = NormalisedAt<kCentred>(moments, again(i, n));
    VF y = ScaledNormal(normal, weight, bias, i, n);
    if constexpr (kGate == GatePlace::kAfter) y = hn::Mul(y, gate_at(i, n));
    StorePiece<kType>(y, out + i * kBytes, n);
  });
}

static void NormRows(const GatedNormOptions& options, const GatedNormInputs& in,
                     const TensorView& out, int64_t begin, int64_t end) {
  const bool gated = in.gate.data != nullptr;
  WithDType(in.x.dtype, [&](auto type) HWY_ATTR {
    WithNormForm(options, gated, [&](auto place, auto centred) HWY_ATTR {
      ForGatedNormRows(
          in.x, begin, end, [&](int64_t b, int64_t t, int64_t g) HWY_ATTR {
            const int64_t own = options.weight_by_group ? g * options.width : 0;
            NormOneRow<decltype(type)::value, decltype(place)::value,
                       decltype(centred)::value>(
                options, in.x.Row(b, t, g),
                gated ? in.gate.Row(b, t, g) : nullptr, in.weight + own,
                in.bias == nullptr ? nullptr : in.bias + own, out.Row(b, t, g));
          });
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(NormRows);

void GatedNormForward(const GatedNormOptions& options,
                      const GatedNormInputs& in, const TensorView& out,
                      Executor& executor) {
  CheckGatedNorm(options, in, out);
  const auto kernel = HWY_DYNAMIC_DISPATCH(NormRows);
  const WideRowTasks tasks = GatedNormTasks(in.x);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(options, in, out, tasks.begin(task), tasks.end(task));
  });
}

void GatedNormRow(const GatedNormOptions& options, const float* x,
                  const float* gate, const float* weight, const float* bias,
                  float* out) {
  const auto row = [&](const float* data) {
    return TensorView::Dense(const_cast<float*>(data), 1, 1, options.groups,
                             options.width);
  };
  HWY_DYNAMIC_DISPATCH(NormRows)
  (options, {row(x), row(gate), weight, bias}, row(out), 0, options.groups);
}

}  // namespace tarn
#endif  // HWY_ONCE
