// Gates are computed again from the inputs, so that the forward pass keeps
// nothing. Sums over rows: each task has its own, which are added in order.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/rg_lru/checks.h"
#include "kernels/rg_lru/rg_lru.h"
#include "kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rg_lru/rg_lru_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/panels-inl.h"
#include "kernels/rg_lru/rg_lru-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

struct RgLruPullback {
  VF x, p_i, p_r, rate;
};

// a b, 0 where a is 0, though b may be infinite there.
static HWY_INLINE VF RgLruProduct(VF a, VF b) {
  return hn::IfThenZeroElse(hn::Eq(a, hn::Zero(DF())), hn::Mul(a, b));
}

static HWY_INLINE RgLruPullback RgLruBack(const RgLruAt& at, bool begins, VF x,
                                          VF rate, VF dy, VF dg,
                                          float most_slope) {
  const DF d;
  const VF flow = begins ? dy : hn::Mul(dy, at.root);  // by i x
  RgLruPullback back;
  back.x = hn::Mul(flow, at.input.below);
  back.p_i = RgLruProduct(at.input.density, hn::Mul(flow, x));
  back.p_r = back.rate = hn::Zero(d);
  if (begins) return back;
  const VF product = hn::Mul(dy, hn::Mul(at.input.below, x));
  const VF inverse =
      hn::Min(hn::Div(hn::Set(d, 1.0f), at.root), hn::Set(d, 2 * most_slope));
  const VF slope = hn::Mul(hn::Sub(hn::Set(d, 1.0f), at.square), inverse);
  const auto none = hn::Lt(at.square, hn::Set(d, kRgLruLeastSquare));
  const VF by_g =
      hn::Sub(dg, hn::IfThenZeroElse(none, hn::Mul(product, slope)));
  back.p_r = hn::Neg(RgLruProduct(at.recurrence.density, hn::Mul(by_g, rate)));
  back.rate = hn::Neg(RgLruProduct(at.recurrence.below, by_g));
  return back;
}

// sums: [3, PadRow(count)], of rates, input biases and recurrence biases, set
// here.
static void RgLruRowsBack(const RgLruCall& call, const RgLruGradients& g,
                          int64_t begin, int64_t end, float* sums) {
  const RgLruChannels& channels = call.channels;
  const int64_t count = channels.count, stride = PadRow(count);
  std::fill(sums, sums + 3 * stride, 0.0f);
  WithDType(call.dtype, [&](auto type) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
    const auto from = [](const void* data, int64_t elements) {
      return static_cast<const char*>(data) + elements * kBytes;
    };
    const auto to = [](void* data, int64_t elements) {
      return static_cast<char*>(data) + elements * kBytes;
    };
    const auto add = [](VF x, float* sum, int64_t n) HWY_ATTR {
      StorePiece<DType::kF32>(hn::Add(x, LoadPiece<DType::kF32>(sum, n)), sum,
                              n);
    };
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t dense = row * count;
      if (call.kept != nullptr && !call.kept[row]) {
        for (void* zero :
             {g.grad_x, g.grad_input_gates, g.grad_recurrence_gates}) {
          std::fill_n(to(zero, dense), count * kBytes, char{0});
        }
        continue;
      }
      const bool begins = call.begins != nullptr && call.begins[row];
      for (int64_t i = 0; i < count; i += lanes) {
        const int64_t n = count - i;
        const VF rate = RgLruShared(channels.rates, i, n);
        const RgLruAt at = RgLruGatesAt(
            hn::Add(LoadPiece<kType>(
                        from(call.input_gates, row * call.input_stride + i), n),
                    RgLruShared(channels.input_bias, i, n)),
            hn::Add(LoadPiece<kType>(from(call.recurrence_gates,
                                          row * call.recurrence_stride + i),
                                     n),
                    RgLruShared(channels.recurrence_bias, i, n)),
            rate);
        const auto flow = [&](const float* grad) HWY_ATTR {
          return grad == nullptr ? hn::Zero(DF())
                                 : LoadPiece<DType::kF32>(grad + dense + i, n);
        };
        const RgLruPullback back = RgLruBack(
            at, begins,
            LoadPiece<kType>(from(call.x, row * call.x_stride + i), n), rate,
            flow(g.grad_inputs), flow(g.grad_gates), channels.most_slope);
        StorePiece<kType>(back.x, to(g.grad_x, dense + i), n);
        StorePiece<kType>(back.p_i, to(g.grad_input_gates, dense + i), n);
        StorePiece<kType>(back.p_r, to(g.grad_recurrence_gates, dense + i), n);
        add(back.rate, sums + i, n);
        add(back.p_i, sums + stride + i, n);
        add(back.p_r, sums + 2 * stride + i, n);
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

HWY_EXPORT(RgLruRowsBack);

}  // namespace

void RgLruRatesBackward(const float* Lambda, const float* grad_rates, int64_t n,
                        float* grad_Lambda) {
  for (int64_t c = 0; c < n; ++c) {
    const double x = Lambda[c];
    grad_Lambda[c] =
        static_cast<float>(kRgLruRate * grad_rates[c] / (1 + std::exp(-x)));
  }
}

size_t RgLruGradientBytes(const RgLruCall& call) {
  return static_cast<size_t>(3 * RgLruTasks(call).count() *
                             PadRow(call.channels.count)) *
         sizeof(float);
}

void RgLruGatesBackward(const RgLruCall& call, const RgLruGradients& g,
                        Executor& executor, void* workspace) {
  CheckRgLru(call);
  WantRgLruData(call, "grad_x", g.grad_x);
  WantRgLruData(call, "grad_input_gates", g.grad_input_gates);
  WantRgLruData(call, "grad_recurrence_gates", g.grad_recurrence_gates);
  WantRgLruData(call, "grad_rates", g.grad_rates);
  WantRgLruData(call, "grad_input_bias", g.grad_input_bias);
  WantRgLruData(call, "grad_recurrence_bias", g.grad_recurrence_bias);
  const int64_t count = call.channels.count, stride = PadRow(count);
  float* sums = static_cast<float*>(workspace);
  const auto kernel = HWY_DYNAMIC_DISPATCH(RgLruRowsBack);
  const WideRowTasks tasks = RgLruTasks(call);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, g, tasks.begin(task), tasks.end(task),
           sums + 3 * task * stride);
  });
  float* const totals[] = {g.grad_rates, g.grad_input_bias,
                           g.grad_recurrence_bias};
  for (int64_t part = 0; part < 3; ++part) {
    if (totals[part] == nullptr) continue;  // of no channels or no rows
    AddUpTasks(tasks.count(), sums + part * stride, 3 * stride, count,
               totals[part]);
  }
}

}  // namespace tarn
#endif  // HWY_ONCE
