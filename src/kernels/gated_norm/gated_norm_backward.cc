// Gradient, equations in gated_norm.h. A row is read three times: once for
// its statistics, which are not kept from the forward pass, once for what
// reaches the norm and the sums, once for dx. Between these passes its entries
// are kept in four rows of scratch: n, g and, with the gate first, a and a'.
#include <algorithm>
#include <cstdint>

#include "kernels/gated_norm/checks.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/gated_norm/tasks.h"
#include "kernels/row_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gated_norm/gated_norm_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/gated_norm/gated_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Where one row is, and its weights with their sums (null: not wanted).
struct NormGradientRow {
  const char *x, *gate, *grad_out;
  char *grad_x, *grad_gate;
  const float *weight, *bias;
  float *sum_weight, *sum_bias;
};

HWY_INLINE void AddPiece(VF x, float* p, int64_t n) {
  StorePiece<DType::kF32>(hn::Add(LoadPiece<DType::kF32>(p, n), x), p, n);
}

template <DType kType, GatePlace kGate, bool kCentred>
static HWY_INLINE void GradientOneRow(const GatedNormOptions& options,
                                      const NormGradientRow& row,
                                      float* scratch) {
  const DF d;
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  const int64_t width = options.width, padded = PadRow(width);
  const bool silu = options.activation == NormGate::kSilu;
  float *u = scratch, *g = u + padded, *a = g + padded, *slope = a + padded;
  const auto load = [](const char* p, int64_t i, int64_t n) HWY_ATTR {
    return LoadPiece<kType>(p + i * kBytes, n);
  };
  VF sum = hn::Zero(d);
  ForPieces(width, [&](int64_t i, int64_t n) HWY_ATTR {
    VF v = load(row.x, i, n);
    if constexpr (kGate == GatePlace::kFirst) {
      const GateCurve curve = GateAt(load(row.gate, i, n), silu);
      v = hn::Mul(v, curve.value);
      hn::Store(curve.value, d, a + i);
      hn::Store(curve.slope, d, slope + i);
    }
    hn::Store(v, d, u + i);
    sum = kCentred ? hn::Add(sum, v) : hn::MulAdd(v, v, sum);
  });
  const RowMoments moments = MomentsOf<kCentred>(
      options, sum,
      [&](int64_t i, int64_t) HWY_ATTR { return hn::Load(d, u + i); });

  VF sum_g = hn::Zero(d), sum_gn = hn::Zero(d);
  ForPieces(width, [&](int64_t i, int64_t n) HWY_ATTR {
    const VF normal = NormalisedAt<kCentred>(moments, hn::Load(d, u + i));
    const VF grad = load(row.grad_out, i, n);  // 0 after the row, as is dy
    VF dy = grad;
    if constexpr (kGate == GatePlace::kAfter) {
      const GateCurve curve = GateAt(load(row.gate, i, n), silu);
      const VF y = ScaledNormal(normal, row.weight, row.bias, i, n);
      StorePiece<kType>(hn::Mul(hn::Mul(grad, y), curve.slope),
                        row.grad_gate + i * kBytes, n);
      dy = hn::Mul(grad, curve.value);
    }
    const VF weighted = hn::Mul(dy, LoadPiece<DType::kF32>(row.weight + i, n));
    sum_g = hn::Add(sum_g, weighted);
    sum_gn = hn::MulAdd(weighted, normal, sum_gn);
    hn::Store(normal, d, u + i);
    hn::Store(weighted, d, g + i);
    if (row.sum_weight != nullptr) {
      AddPiece(hn::Mul(dy, normal), row.sum_weight + i, n);
    }
    if (row.sum_bias != nullptr) AddPiece(dy, row.sum_bias + i, n);
  });

  const float count = static_cast<float>(width);
  const VF mean_g = hn::Set(d, SumOf(sum_g) / count);
  const VF mean_gn = hn::Set(d, SumOf(sum_gn) / count);
  ForPieces(width, [&](int64_t i, int64_t n) HWY_ATTR {
    VF du = hn::Load(d, g + i);
    if constexpr (kCentred) du = hn::Sub(du, mean_g);
    du = hn::NegMulAdd(hn::Load(d, u + i), mean_gn, du);
    du = hn::Mul(du, moments.inverse);
    if constexpr (kGate == GatePlace::kFirst) {
      const VF by_gate = hn::Mul(load(row.x, i, n), hn::Load(d, slope + i));
      StorePiece<kType>(hn::Mul(du, by_gate), row.grad_gate + i * kBytes, n);
      du = hn::Mul(du, hn::Load(d, a + i));
    }
    StorePiece<kType>(du, row.grad_x + i * kBytes, n);
  });
}

// sums: [2, weights], of weight and of bias.
static void GradientRows(const GatedNormOptions& options,
                         const GatedNormInputs& in,
                         const GatedNormGradients& grad, int64_t begin,
                         int64_t end, float* sums, float* scratch) {
  const int64_t weights = GatedNormWeights(options);
  std::fill(sums, sums + 2 * weights, 0.0f);
  const bool gated = in.gate.data != nullptr;
  const auto at = [](auto* base, int64_t offset) {
    return base == nullptr ? nullptr : base + offset;
  };
  float* sum_weight = grad.grad_weight == nullptr ? nullptr : sums;
  float* sum_bias = grad.grad_bias == nullptr ? nullptr : sums + weights;
  WithDType(in.x.dtype, [&](auto type) HWY_ATTR {
    WithNormForm(options, gated, [&](auto place, auto centred) HWY_ATTR {
      ForGatedNormRows(
          in.x, begin, end, [&](int64_t b, int64_t t, int64_t g) HWY_ATTR {
            const int64_t own = options.weight_by_group ? g * options.width : 0;
            const NormGradientRow row = {
                in.x.Row(b, t, g),
                gated ? in.gate.Row(b, t, g) : nullptr,
                grad.grad_out.Row(b, t, g),
                grad.grad_x.Row(b, t, g),
                gated ? grad.grad_gate.Row(b, t, g) : nullptr,
                in.weight + own,
                at(in.bias, own),
                at(sum_weight, own),
                at(sum_bias, own)};
            GradientOneRow<decltype(type)::value, decltype(place)::value,
                           decltype(centred)::value>(options, row, scratch);
          });
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(GradientRows);

size_t GatedNormGradientBytes(const GatedNormOptions& options,
                              const TensorView& x, int workers) {
  const int64_t sums = PadRow(2 * GatedNormWeights(options));
  const int64_t scratch = kGatedNormScratchRows * PadRow(options.width);
  return static_cast<size_t>(GatedNormTasks(x).count() * sums +
                             workers * scratch) *
         sizeof(float);
}

void GatedNormBackward(const GatedNormOptions& options,
                       const GatedNormInputs& in,
                       const GatedNormGradients& grad, Executor& executor,
                       void* workspace) {
  CheckGatedNormGradients(options, in, grad);
  const auto kernel = HWY_DYNAMIC_DISPATCH(GradientRows);
  const WideRowTasks tasks = GatedNormTasks(in.x);
  const int64_t weights = GatedNormWeights(options);
  const int64_t stride = PadRow(2 * weights);
  const int64_t scratch = kGatedNormScratchRows * PadRow(options.width);
  float* rows = static_cast<float*>(workspace);
  float* sums = rows + executor.width() * scratch;
  executor.ParallelFor(tasks.count(), [&](int64_t task, int worker) {
    kernel(options, in, grad, tasks.begin(task), tasks.end(task),
           sums + task * stride, rows + worker * scratch);
  });
  const auto add_up = [&](int64_t offset, float* to) {
    if (to != nullptr)
      AddUpTasks(tasks.count(), sums + offset, stride, weights, to);
  };
  add_up(0, grad.grad_weight);
  add_up(weights, grad.grad_bias);
}

}  // namespace tarn
#endif  // HWY_ONCE
