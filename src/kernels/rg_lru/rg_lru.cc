#include "kernels/rg_lru/rg_lru.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/error.h"
#include "kernels/rg_lru/checks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rg_lru/rg_lru.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/panels-inl.h"
#include "kernels/rg_lru/rg_lru-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// One row; x, p_i and p_r are bytes of kType.
template <DType kType>
static HWY_INLINE void RgLruRowOf(const RgLruChannels& channels, bool begins,
                                  const char* x, const char* p_i,
                                  const char* p_r, float* inputs,
                                  float* gates) {
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < channels.count; i += lanes) {
    const int64_t n = channels.count - i;
    const RgLruAt at =
        RgLruGatesAt(hn::Add(LoadPiece<kType>(p_i + i * kBytes, n),
                             RgLruShared(channels.input_bias, i, n)),
                     hn::Add(LoadPiece<kType>(p_r + i * kBytes, n),
                             RgLruShared(channels.recurrence_bias, i, n)),
                     RgLruShared(channels.rates, i, n));
    VF y = hn::Mul(at.input.below, LoadPiece<kType>(x + i * kBytes, n));
    VF g = hn::Set(d, -std::numeric_limits<float>::infinity());
    if (!begins) {
      y = hn::Mul(y, at.root);
      g = at.g;
    }
    StorePiece<DType::kF32>(y, inputs + i, n);
    StorePiece<DType::kF32>(g, gates + i, n);
  }
}

static void RgLruRow(const RgLruChannels& channels, bool begins, const float* x,
                     const float* p_i, const float* p_r, float* inputs,
                     float* gates) {
  RgLruRowOf<DType::kF32>(channels, begins, reinterpret_cast<const char*>(x),
                          reinterpret_cast<const char*>(p_i),
                          reinterpret_cast<const char*>(p_r), inputs, gates);
}

static void RgLruRows(const RgLruCall& call, float* inputs, float* gates,
                      int64_t begin, int64_t end) {
  WithDType(call.dtype, [&](auto type) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
    const auto at = [](const void* data, int64_t elements) {
      return static_cast<const char*>(data) + elements * kBytes;
    };
    const int64_t count = call.channels.count;
    for (int64_t row = begin; row < end; ++row) {
      float* y = inputs + row * count;
      float* g = gates + row * count;
      if (call.kept != nullptr && !call.kept[row]) {
        std::fill(y, y + count, 0.0f);
        std::fill(g, g + count, 0.0f);
        continue;
      }
      RgLruRowOf<kType>(
          call.channels, call.begins != nullptr && call.begins[row],
          at(call.x, row * call.x_stride),
          at(call.input_gates, row * call.input_stride),
          at(call.recurrence_gates, row * call.recurrence_stride), y, g);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(RgLruRow);
HWY_EXPORT(RgLruRows);

}  // namespace

void RgLruRates(const float* Lambda, int64_t n, float* rates) {
  for (int64_t c = 0; c < n; ++c) {
    const double x = Lambda[c];
    const double soft = std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    rates[c] =
        std::isnan(x) ? Lambda[c] : static_cast<float>(kRgLruRate * soft);
  }
}

void WantRgLruData(const RgLruCall& call, const char* name, const void* data) {
  if (data == nullptr && call.rows > 0 && call.channels.count > 0) {
    throw ArgumentError(StrCat("rg_lru: ", name), "data", "a null pointer");
  }
}

void CheckRgLru(const RgLruCall& call) {
  if (call.rows < 0 || call.channels.count < 0) {
    throw ShapeError("rg_lru: inputs", "sizes of at least 0",
                     ShapeText({call.rows, call.channels.count}));
  }
  if (!(call.channels.most_slope > 0)) {
    throw ArgumentError("rg_lru: most_slope", "a number above 0",
                        StrCat(call.channels.most_slope));
  }
  WantRgLruData(call, "inputs", call.x);
  WantRgLruData(call, "input_gates", call.input_gates);
  WantRgLruData(call, "recurrence_gates", call.recurrence_gates);
  WantRgLruData(call, "rates", call.channels.rates);
}

void RgLruGatesRow(const RgLruChannels& channels, bool begins, const float* x,
                   const float* input_gates, const float* recurrence_gates,
                   float* inputs, float* gates) {
  HWY_DYNAMIC_DISPATCH(RgLruRow)
  (channels, begins, x, input_gates, recurrence_gates, inputs, gates);
}

void RgLruGatesForward(const RgLruCall& call, float* inputs, float* gates,
                       Executor& executor) {
  CheckRgLru(call);
  WantRgLruData(call, "gated inputs", inputs);
  WantRgLruData(call, "gates", gates);
  const auto kernel = HWY_DYNAMIC_DISPATCH(RgLruRows);
  const WideRowTasks tasks = RgLruTasks(call);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, inputs, gates, tasks.begin(task), tasks.end(task));
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
