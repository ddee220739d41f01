// Rows are taken in pieces of floats, which a piece of 16 bits is widened to,
// so that a form is compiled once for all dtypes.
#include "kernels/decay_gate/decay_gate.h"

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "kernels/row_tasks.h"
#include "kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decay_gate/decay_gate.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/decay_gate/decay_gate-inl.h"
#include "kernels/pieces-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

constexpr int64_t kGatePiece = 256;  // floats of a piece on the stack

HWY_INLINE VF SharedAt(const float* row, int64_t i, int64_t n, VF fallback) {
  return row == nullptr ? fallback : LoadPiece<DType::kF32>(row + i, n);
}

template <GateForm kForm, bool kLimited>
static HWY_INLINE void GatePieceOf(const GateRow& gate, const float* x,
                                   float* g, float* second) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF none = hn::Zero(d), one = hn::Set(d, 1.0f);
  const VF scale = hn::Set(d, gate.scale);
  const StepLimits limits = {hn::Set(d, gate.least), hn::Set(d, gate.most)};
  for (int64_t i = 0; i < gate.count; i += lanes) {
    const int64_t n = gate.count - i;
    const VF rate = TakesRates(kForm) ? SharedAt(gate.rates, i, n, one) : one;
    const GateValue at = GateAt<kForm>(LoadPiece<DType::kF32>(x + i, n),
                                       SharedAt(gate.bias, i, n, none), rate,
                                       scale, kLimited ? &limits : nullptr);
    StorePiece<DType::kF32>(at.g, g + i, n);
    if constexpr (HasSecond(kForm)) {
      if (second != nullptr) {
        StorePiece<DType::kF32>(at.second, second + i, n);
      }
    }
  }
}

static void GatePiece(const GateRow& gate, const float* x, float* g,
                      float* second) {
  WithGateForm(gate.form, [&](auto form) HWY_ATTR {
    constexpr GateForm kForm = decltype(form)::value;
    if (kForm == GateForm::kSoftplus && gate.limited()) {
      GatePieceOf<kForm, kForm == GateForm::kSoftplus>(gate, x, g, second);
    } else {
      GatePieceOf<kForm, false>(gate, x, g, second);
    }
  });
}

// `count` entries of the rows that all rows of a call share, from entry i on.
static GateRow PartOfGate(const GateRow& gate, int64_t i, int64_t count) {
  GateRow part = gate;
  part.count = count;
  if (gate.rates != nullptr) part.rates += i;
  if (gate.bias != nullptr) part.bias += i;
  return part;
}

// n entries of a row at `from`: themselves where they are floats, else widened
// into `wide`.
static const float* FloatsAt(DType dtype, const void* from, int64_t n,
                             float* wide) {
  if (dtype == DType::kF32) return static_cast<const float*>(from);
  LoadRow(dtype, from, n, wide);
  return wide;
}

static DType SecondType(const DecayGateCall& call) {
  return call.gate.form == GateForm::kBounded ? call.dtype : DType::kF32;
}

// f(row, first entry, entries, shared rows of the piece).
template <class F>
static HWY_INLINE void ForGatePieces(const DecayGateCall& call, int64_t begin,
                                     int64_t end, const F& f) {
  const int64_t count = call.gate.count;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t i = 0; i < count; i += kGatePiece) {
      const int64_t n = std::min(kGatePiece, count - i);
      f(row, i, n, PartOfGate(call.gate, i, n));
    }
  }
}

static const char* ElementAt(const void* data, DType dtype, int64_t i) {
  return static_cast<const char*>(data) +
         i * static_cast<int64_t>(DTypeBytes(dtype));
}
static char* ElementAt(void* data, DType dtype, int64_t i) {
  return static_cast<char*>(data) + i * static_cast<int64_t>(DTypeBytes(dtype));
}

static void GateRows(const DecayGateCall& call, float* gates, void* second,
                     int64_t begin, int64_t end) {
  HWY_ALIGN float wide[kGatePiece], keys[kGatePiece];
  const DType type = SecondType(call);
  ForGatePieces(
      call, begin, end,
      [&](int64_t row, int64_t i, int64_t n, const GateRow& gate) HWY_ATTR {
        const int64_t at = row * call.gate.count + i;
        const float* x = FloatsAt(
            call.dtype, ElementAt(call.x, call.dtype, row * call.stride + i), n,
            wide);
        if (second == nullptr) return GatePiece(gate, x, gates + at, nullptr);
        char* to = ElementAt(second, type, at);
        if (type == DType::kF32) {
          return GatePiece(gate, x, gates + at, reinterpret_cast<float*>(to));
        }
        GatePiece(gate, x, gates + at, keys);
        StoreRow(type, keys, n, to);
      });
}

// Entries of one piece and the gradients of its results, all floats.
struct GatePullbackRun {
  const float *x, *grad_gates, *grad_second;
  float *grad_x, *bias_sums, *rate_sums;
};

template <GateForm kForm, bool kLimited>
static HWY_INLINE void GatePieceBack(const GateRow& gate,
                                     const GatePullbackRun& run) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF none = hn::Zero(d), one = hn::Set(d, 1.0f);
  const VF scale = hn::Set(d, gate.scale);
  const StepLimits limits = {hn::Set(d, gate.least), hn::Set(d, gate.most)};
  const auto add = [](VF x, float* sums, int64_t n) HWY_ATTR {
    StorePiece<DType::kF32>(hn::Add(x, LoadPiece<DType::kF32>(sums, n)), sums,
                            n);
  };
  for (int64_t i = 0; i < gate.count; i += lanes) {
    const int64_t n = gate.count - i;
    const VF rate = TakesRates(kForm) ? SharedAt(gate.rates, i, n, one) : one;
    const GatePullback back = GateBack<kForm>(
        SharedAt(run.grad_gates, i, n, none),
        HasSecond(kForm) ? SharedAt(run.grad_second, i, n, none) : none,
        LoadPiece<DType::kF32>(run.x + i, n), SharedAt(gate.bias, i, n, none),
        rate, scale, kLimited ? &limits : nullptr);
    StorePiece<DType::kF32>(back.x, run.grad_x + i, n);
    if (run.bias_sums != nullptr) add(back.bias, run.bias_sums + i, n);
    if constexpr (TakesRates(kForm)) {
      if (run.rate_sums != nullptr) add(back.rate, run.rate_sums + i, n);
    }
  }
}

// sums: [2, PadRow(count)], of the biases and of the rates, set here; null:
// not wanted.
static void GateRowsBack(const DecayGateCall& call, const DecayGateGradients& g,
                         int64_t begin, int64_t end, float* sums) {
  HWY_ALIGN float wide[kGatePiece], flow[kGatePiece], out[kGatePiece];
  const int64_t stride = PadRow(call.gate.count);
  if (sums != nullptr) std::fill(sums, sums + 2 * stride, 0.0f);
  const DType type = SecondType(call);
  ForGatePieces(
      call, begin, end,
      [&](int64_t row, int64_t i, int64_t n, const GateRow& gate) HWY_ATTR {
        const int64_t at = row * call.gate.count + i;
        char* to = ElementAt(g.grad_x, call.dtype, at);
        const bool floats = call.dtype == DType::kF32;
        const GatePullbackRun run = {
            FloatsAt(call.dtype,
                     ElementAt(call.x, call.dtype, row * call.stride + i), n,
                     wide),
            g.grad_gates == nullptr ? nullptr : g.grad_gates + at,
            g.grad_second == nullptr
                ? nullptr
                : FloatsAt(type, ElementAt(g.grad_second, type, at), n, flow),
            floats ? reinterpret_cast<float*>(to) : out,
            sums == nullptr ? nullptr : sums + i,
            sums == nullptr ? nullptr : sums + stride + i};
        WithGateForm(gate.form, [&](auto form) HWY_ATTR {
          constexpr GateForm kForm = decltype(form)::value;
          if (kForm == GateForm::kSoftplus && gate.limited()) {
            GatePieceBack<kForm, kForm == GateForm::kSoftplus>(gate, run);
          } else {
            GatePieceBack<kForm, false>(gate, run);
          }
        });
        if (!floats) StoreRow(call.dtype, out, n, to);
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(GatePiece);
HWY_EXPORT(GateRows);
HWY_EXPORT(GateRowsBack);

void WantGateData(const DecayGateCall& call, const char* name,
                  const void* data) {
  if (data == nullptr && call.rows > 0 && call.gate.count > 0) {
    throw ArgumentError(StrCat("decay_gate: ", name), "data", "a null pointer");
  }
}

void CheckDecayGate(const DecayGateCall& call) {
  if (call.rows < 0 || call.gate.count < 0) {
    throw ShapeError("decay_gate: x", "sizes of at least 0",
                     ShapeText({call.rows, call.gate.count}));
  }
  if (!(call.gate.least >= 0 && call.gate.least <= call.gate.most)) {
    throw ArgumentError("decay_gate: least",
                        StrCat("a number from 0 to most = ", call.gate.most),
                        StrCat(call.gate.least));
  }
  WantGateData(call, "x", call.x);
  if (call.gate.form == GateForm::kBounded) {
    WantGateData(call, "bias", call.gate.bias);
  }
}

WideRowTasks GateTasks(const DecayGateCall& call) {
  return {call.rows, call.gate.count, 64};
}

}  // namespace

void DecayGateRow(const GateRow& gate, const float* x, float* g,
                  float* second) {
  HWY_DYNAMIC_DISPATCH(GatePiece)(gate, x, g, second);
}

void DecayGateForward(const DecayGateCall& call, float* gates, void* second,
                      Executor& executor) {
  CheckDecayGate(call);
  WantGateData(call, "gates", gates);
  const auto kernel = HWY_DYNAMIC_DISPATCH(GateRows);
  const WideRowTasks tasks = GateTasks(call);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, gates, second, tasks.begin(task), tasks.end(task));
  });
}

size_t DecayGateGradientBytes(const DecayGateCall& call) {
  return static_cast<size_t>(2 * GateTasks(call).count() *
                             PadRow(call.gate.count)) *
         sizeof(float);
}

void DecayGateBackward(const DecayGateCall& call, const DecayGateGradients& g,
                       Executor& executor, void* workspace) {
  CheckDecayGate(call);
  WantGateData(call, "grad_x", g.grad_x);
  const bool summed = g.grad_bias != nullptr || g.grad_log_rates != nullptr;
  float* sums = summed ? static_cast<float*>(workspace) : nullptr;
  const int64_t stride = PadRow(call.gate.count);
  const auto kernel = HWY_DYNAMIC_DISPATCH(GateRowsBack);
  const WideRowTasks tasks = GateTasks(call);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, g, tasks.begin(task), tasks.end(task),
           summed ? sums + 2 * task * stride : nullptr);
  });
  const auto total = [&](const float* from, float* to) {
    if (to == nullptr) return;
    AddUpTasks(tasks.count(), from, 2 * stride, call.gate.count, to);
  };
  total(sums, g.grad_bias);
  total(summed ? sums + stride : nullptr, g.grad_log_rates);
}

}  // namespace tarn
#endif  // HWY_ONCE
