// Heads are lanes, as in the forward pass: the gradient of m stays in a
// register while time runs in reverse.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/mlstm/checks.h"
#include "kernels/mlstm/mlstm.h"
#include "kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mlstm/mlstm_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/activation/activation-inl.h"
#include "kernels/mlstm/mlstm-inl.h"
#include "kernels/panels-inl.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// The heads of one vector from `head` on, over one sequence. sums: [2,
// PadRow(H)], of the biases, of whose lanes these are set here.
template <DType kType>
static HWY_INLINE void MlstmScanBackOf(const MlstmGatesInputs& in,
                                       const MlstmGatesGradients& g,
                                       int64_t sequence, int64_t head,
                                       float* sums) {
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  const DF d;
  const VF zero = hn::Zero(d);
  const int64_t heads = in.input_gates.size[3], n = heads - head;
  const int64_t tokens = in.input_gates.size[1];
  const bool packed = in.cu_seqlens != nullptr;
  const int64_t b = packed ? 0 : sequence;
  const int64_t begin = packed ? in.cu_seqlens[sequence] : 0;
  const int64_t end = packed ? in.cu_seqlens[sequence + 1] : tokens;
  const int64_t state = sequence * heads + head;
  const auto at_state = [&](const float* states) HWY_ATTR {
    return states == nullptr ? zero : LoadPiece<DType::kF32>(states + state, n);
  };
  VF by_m = at_state(g.grad_final_maximum);
  VF sum_i = zero, sum_f = zero;
  for (int64_t t = end - 1; t >= begin; --t) {
    const auto rows = [&](const TensorView& view) HWY_ATTR {
      return view.data == nullptr
                 ? zero
                 : LoadPiece<DType::kF32>(MlstmFloats(view, b, t, head), n);
    };
    by_m = hn::Add(by_m, rows(g.grad_maxima));
    VF by_i = zero, by_f = zero;
    if (in.kept == nullptr || in.kept[b * tokens + t]) {
      const MlstmCapped i = MlstmCap(
          in.softcap,
          MlstmNumbers<kType>(in.input_gates, b, t, head, in.input_bias, n));
      const MlstmCapped f = MlstmCap(
          in.softcap,
          MlstmNumbers<kType>(in.forget_gates, b, t, head, in.forget_bias, n));
      const VF before = t == begin
                            ? at_state(in.initial_maximum)
                            : LoadPiece<DType::kF32>(
                                  MlstmFloats(g.maxima, b, t - 1, head), n);
      const auto is_input =
          hn::Gt(i.value, hn::Add(MlstmKeptLog(f.value), before));
      const VF by_g = rows(g.grad_gates);
      const VF by_w = hn::Mul(rows(g.grad_factors), rows(g.factors));
      by_m = hn::Sub(by_m, hn::Add(by_g, by_w));
      by_i = hn::Add(by_w, hn::IfThenElseZero(is_input, by_m));
      by_m = hn::Add(by_g, hn::IfThenZeroElse(is_input, by_m));
      by_f =
          hn::Mul(hn::Mul(by_m, LogisticAt(hn::Neg(f.value)).below), f.slope);
      by_i = hn::Mul(by_i, i.slope);
    }
    StorePiece<kType>(by_i, g.grad_input.Row(b, t, 0) + head * kBytes, n);
    StorePiece<kType>(by_f, g.grad_forget.Row(b, t, 0) + head * kBytes, n);
    sum_i = hn::Add(sum_i, by_i);
    sum_f = hn::Add(sum_f, by_f);
  }
  if (g.grad_initial_maximum != nullptr) {
    StorePiece<DType::kF32>(by_m, g.grad_initial_maximum + state, n);
  }
  StorePiece<DType::kF32>(sum_i, sums + head, n);
  StorePiece<DType::kF32>(sum_f, sums + PadRow(heads) + head, n);
}

static void MlstmScanBack(const MlstmGatesInputs& in,
                          const MlstmGatesGradients& g, int64_t sequence,
                          int64_t head, float* sums) {
  WithDType(in.input_gates.dtype, [&](auto type) HWY_ATTR {
    MlstmScanBackOf<decltype(type)::value>(in, g, sequence, head, sums);
  });
}

static int64_t MlstmBackLanes() {
  return static_cast<int64_t>(hn::Lanes(DF()));
}

static void MlstmReadsBack(const MlstmReadCall& call, const float* grad_h,
                           float* grad_read, float* grad_maxima, int64_t begin,
                           int64_t end) {
  const DF d;
  const int64_t width = call.width;
  for (int64_t row = begin; row < end; ++row) {
    const float* y = call.read + row * (width + 1);
    const float* flow = grad_h + row * width;
    float* to = grad_read + row * (width + 1);
    const float normal = y[width];
    const VF floor = ExpOfAny(hn::Neg(hn::Set(d, call.maxima[row])));
    const float least = hn::GetLane(floor);
    const bool normalised = std::fabs(normal) >= least;
    const VF inverse = hn::Div(
        hn::Set(d, 1.0f),
        hn::Set(d, (normalised ? std::fabs(normal) : least) + call.eps));
    // sum_c dh_c h_c
    VF total = hn::Zero(d);
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t i = 0; i < width; i += lanes) {
      const VF x = hn::Mul(LoadPiece<DType::kF32>(y + i, width - i), inverse);
      total = hn::MulAdd(LoadPiece<DType::kF32>(flow + i, width - i), x, total);
    }
    const float by_sum = -hn::GetLane(
        hn::Mul(hn::Set(d, hn::GetLane(hn::SumOfLanes(d, total))), inverse));
    TransformRow(flow, width, to,
                 [&](VF x) HWY_ATTR { return hn::Mul(x, inverse); });
    to[width] = normalised ? std::copysign(1.0f, normal) * by_sum : 0.0f;
    // An infinite exp(-m) leaves an h of 0.
    grad_maxima[row] = normalised || std::isinf(least) ? 0.0f : -by_sum * least;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(MlstmScanBack);
HWY_EXPORT(MlstmBackLanes);
HWY_EXPORT(MlstmReadsBack);

}  // namespace

size_t MlstmGradientBytes(const MlstmGatesInputs& in) {
  return static_cast<size_t>(2 * in.SequenceCount() *
                             PadRow(in.input_gates.size[3])) *
         sizeof(float);
}

void MlstmGatesBackward(const MlstmGatesInputs& in,
                        const MlstmGatesGradients& g, Executor& executor,
                        void* workspace) {
  CheckMlstmGates(in);
  const DType dtype = in.input_gates.dtype;
  CheckMlstmView(in, g.factors, DType::kF32, "factors");
  CheckMlstmView(in, g.maxima, DType::kF32, "maxima");
  for (const auto& [name, view] : {std::pair{"grad_gates", &g.grad_gates},
                                   std::pair{"grad_factors", &g.grad_factors},
                                   std::pair{"grad_maxima", &g.grad_maxima}}) {
    if (view->data != nullptr) CheckMlstmView(in, *view, DType::kF32, name);
  }
  CheckMlstmView(in, g.grad_input, dtype, "grad_input");
  CheckMlstmView(in, g.grad_forget, dtype, "grad_forget");
  const int64_t heads = in.input_gates.size[3], stride = PadRow(heads);
  const int64_t sequences = in.SequenceCount();
  float* sums = static_cast<float*>(workspace);
  const auto kernel = HWY_DYNAMIC_DISPATCH(MlstmScanBack);
  const int64_t lanes = HWY_DYNAMIC_DISPATCH(MlstmBackLanes)();
  const int64_t cuts = (heads + lanes - 1) / lanes;
  executor.ParallelFor(sequences * cuts, [&](int64_t task, int) {
    const int64_t sequence = task / cuts;
    kernel(in, g, sequence, task % cuts * lanes, sums + 2 * sequence * stride);
  });
  const auto total = [&](const float* from, float* to) {
    if (to != nullptr) AddUpTasks(sequences, from, 2 * stride, heads, to);
  };
  total(sums, g.grad_input_bias);
  total(sums + stride, g.grad_forget_bias);
}

void MlstmReadBackward(const MlstmReadCall& call, const float* grad_h,
                       float* grad_read, float* grad_maxima,
                       Executor& executor) {
  CheckMlstmRead(call);
  if (call.width > 0) WantMlstmData(call, "grad_h", grad_h);
  WantMlstmData(call, "grad_read", grad_read);
  WantMlstmData(call, "grad_maxima", grad_maxima);
  const auto kernel = HWY_DYNAMIC_DISPATCH(MlstmReadsBack);
  const WideRowTasks tasks = MlstmReadTasks(call);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, grad_h, grad_read, grad_maxima, tasks.begin(task),
           tasks.end(task));
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
