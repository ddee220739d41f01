// Heads are lanes: m of a vector of them stays in a register over time.
#include "kernels/mlstm/mlstm.h"

#include <cstdint>
#include <limits>

#include "core/error.h"
#include "kernels/mlstm/checks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mlstm/mlstm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/mlstm/mlstm-inl.h"
#include "kernels/panels-inl.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

template <DType kType>
static HWY_INLINE void MlstmScanOf(const MlstmGatesInputs& in,
                                   const MlstmGatesOutputs& out,
                                   int64_t sequence, int64_t head) {
  const DF d;
  const int64_t heads = in.input_gates.size[3], n = heads - head;
  const bool packed = in.cu_seqlens != nullptr;
  const int64_t b = packed ? 0 : sequence;
  const int64_t begin = packed ? in.cu_seqlens[sequence] : 0;
  const int64_t end =
      packed ? in.cu_seqlens[sequence + 1] : in.input_gates.size[1];
  const int64_t state = sequence * heads + head;
  VF maximum = in.initial_maximum == nullptr
                   ? hn::Zero(d)
                   : LoadPiece<DType::kF32>(in.initial_maximum + state, n);
  for (int64_t t = begin; t < end; ++t) {
    VF g = hn::Zero(d), w = hn::Zero(d);
    if (in.kept == nullptr || in.kept[b * in.input_gates.size[1] + t]) {
      const VF i =
          MlstmCap(in.softcap, MlstmNumbers<kType>(in.input_gates, b, t, head,
                                                   in.input_bias, n))
              .value;
      const VF kept = MlstmKeptLog(
          MlstmCap(in.softcap, MlstmNumbers<kType>(in.forget_gates, b, t, head,
                                                   in.forget_bias, n))
              .value);
      const VF decayed = hn::Add(kept, maximum);
      // NaN stays: a comparison with it is false.
      const VF next =
          UnlessNaN(i, hn::IfThenElse(hn::Gt(i, decayed), i, decayed));
      g = hn::Add(kept, hn::Sub(maximum, next));
      w = ExpOfLane(hn::Sub(i, next));
      maximum = next;
    }
    StorePiece<DType::kF32>(g, MlstmFloats(out.gates, b, t, head), n);
    StorePiece<DType::kF32>(w, MlstmFloats(out.factors, b, t, head), n);
    StorePiece<DType::kF32>(maximum, MlstmFloats(out.maxima, b, t, head), n);
  }
  if (out.final_maximum != nullptr) {
    StorePiece<DType::kF32>(maximum, out.final_maximum + state, n);
  }
}

// The heads of one vector from `head` on, over one sequence.
static void MlstmScan(const MlstmGatesInputs& in, const MlstmGatesOutputs& out,
                      int64_t sequence, int64_t head) {
  WithDType(in.input_gates.dtype, [&](auto type) HWY_ATTR {
    MlstmScanOf<decltype(type)::value>(in, out, sequence, head);
  });
}

static int64_t MlstmLanes() { return static_cast<int64_t>(hn::Lanes(DF())); }

static void MlstmValue(float factor, const float* value, int64_t width,
                       float* to) {
  const VF w = hn::Set(DF(), factor);
  TransformRow(value, width, to, [&](VF v) HWY_ATTR { return hn::Mul(w, v); });
  to[width] = factor;
}

static void MlstmReads(const MlstmReadCall& call, float* h, int64_t begin,
                       int64_t end) {
  const DF d;
  for (int64_t row = begin; row < end; ++row) {
    const float* y = call.read + row * (call.width + 1);
    const VF least = ExpOfAny(hn::Neg(hn::Set(d, call.maxima[row])));
    const VF size = hn::Abs(hn::Set(d, y[call.width]));
    const VF sum = hn::Add(
        UnlessNaN(size, hn::IfThenElse(hn::Gt(size, least), size, least)),
        hn::Set(d, call.eps));
    TransformRow(y, call.width, h + row * call.width,
                 [&](VF x) HWY_ATTR { return hn::Div(x, sum); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(MlstmScan);
HWY_EXPORT(MlstmLanes);
HWY_EXPORT(MlstmValue);
HWY_EXPORT(MlstmReads);

}  // namespace

void MlstmGatesForward(const MlstmGatesInputs& in,
                       const MlstmGatesOutputs& outputs, Executor& executor) {
  CheckMlstmGates(in);
  CheckMlstmView(in, outputs.gates, DType::kF32, "gates");
  CheckMlstmView(in, outputs.factors, DType::kF32, "factors");
  CheckMlstmView(in, outputs.maxima, DType::kF32, "maxima");
  const auto kernel = HWY_DYNAMIC_DISPATCH(MlstmScan);
  const int64_t lanes = HWY_DYNAMIC_DISPATCH(MlstmLanes)();
  const int64_t cuts = (in.input_gates.size[3] + lanes - 1) / lanes;
  executor.ParallelFor(in.SequenceCount() * cuts, [&](int64_t task, int) {
    kernel(in, outputs, task / cuts, task % cuts * lanes);
  });
}

void MlstmValueRow(float factor, const float* value, int64_t width, float* to) {
  HWY_DYNAMIC_DISPATCH(MlstmValue)(factor, value, width, to);
}

void MlstmReadRow(const float* read, float maximum, int64_t width, float eps,
                  float* h) {
  const MlstmReadCall call = {1, width, read, &maximum, eps};
  HWY_DYNAMIC_DISPATCH(MlstmReads)(call, h, 0, 1);
}

void MlstmReadForward(const MlstmReadCall& call, float* h, Executor& executor) {
  CheckMlstmRead(call);
  if (call.width > 0) WantMlstmData(call, "h", h);
  const auto kernel = HWY_DYNAMIC_DISPATCH(MlstmReads);
  const WideRowTasks tasks = MlstmReadTasks(call);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, h, tasks.begin(task), tasks.end(task));
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
