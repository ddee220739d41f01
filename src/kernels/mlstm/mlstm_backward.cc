// m has no gradient, so that the gates' gradient is one of single entries.
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

// Tokens [begin, end) of the list of all. sums: [2, PadRow(H)], of the biases,
// set here.
static void MlstmGatesBack(const MlstmGatesInputs& in,
                           const MlstmGatesGradients& g, int64_t begin,
                           int64_t end, float* sums) {
  const int64_t heads = in.input_gates.size[3], stride = PadRow(heads);
  const int64_t tokens = in.input_gates.size[1];
  std::fill(sums, sums + 2 * stride, 0.0f);
  WithDType(in.input_gates.dtype, [&](auto type) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
    const DF d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t at = begin; at < end; ++at) {
      const int64_t b = at / tokens, t = at % tokens;
      const bool kept = in.kept == nullptr || in.kept[at];
      for (int64_t head = 0; head < heads; head += lanes) {
        const int64_t n = heads - head;
        const auto flow = [&](const TensorView& view) HWY_ATTR {
          return view.data == nullptr
                     ? hn::Zero(d)
                     : LoadPiece<DType::kF32>(MlstmFloats(view, b, t, head), n);
        };
        VF by_i = hn::Zero(d), by_f = hn::Zero(d);
        if (kept) {
          const MlstmCapped i =
              MlstmCap(in.softcap, MlstmNumbers<kType>(in.input_gates, b, t,
                                                       head, in.input_bias, n));
          const MlstmCapped f = MlstmCap(
              in.softcap, MlstmNumbers<kType>(in.forget_gates, b, t, head,
                                              in.forget_bias, n));
          by_i =
              hn::Mul(hn::Mul(flow(g.grad_factors), flow(g.factors)), i.slope);
          by_f = hn::Mul(
              hn::Mul(flow(g.grad_gates), LogisticAt(hn::Neg(f.value)).below),
              f.slope);
        }
        StorePiece<kType>(by_i, g.grad_input.Row(b, t, 0) + head * kBytes, n);
        StorePiece<kType>(by_f, g.grad_forget.Row(b, t, 0) + head * kBytes, n);
        const auto add = [&](VF x, float* sum) HWY_ATTR {
          StorePiece<DType::kF32>(hn::Add(x, LoadPiece<DType::kF32>(sum, n)),
                                  sum, n);
        };
        add(by_i, sums + head);
        add(by_f, sums + stride + head);
      }
    }
  });
}

static void MlstmReadsBack(const MlstmReadCall& call, const float* grad_h,
                           float* grad_read, int64_t begin, int64_t end) {
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
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(MlstmGatesBack);
HWY_EXPORT(MlstmReadsBack);

WideRowTasks MlstmGateTasks(const MlstmGatesInputs& in) {
  return {in.input_gates.size[0] * in.input_gates.size[1],
          in.input_gates.size[3], 64};
}

}  // namespace

size_t MlstmGradientBytes(const MlstmGatesInputs& in) {
  return static_cast<size_t>(2 * MlstmGateTasks(in).count() *
                             PadRow(in.input_gates.size[3])) *
         sizeof(float);
}

void MlstmGatesBackward(const MlstmGatesInputs& in,
                        const MlstmGatesGradients& g, Executor& executor,
                        void* workspace) {
  CheckMlstmGates(in);
  const DType dtype = in.input_gates.dtype;
  CheckMlstmView(in, g.factors, DType::kF32, "factors");
  for (const auto& [name, view] :
       {std::pair{"grad_gates", &g.grad_gates},
        std::pair{"grad_factors", &g.grad_factors}}) {
    if (view->data != nullptr) CheckMlstmView(in, *view, DType::kF32, name);
  }
  CheckMlstmView(in, g.grad_input, dtype, "grad_input");
  CheckMlstmView(in, g.grad_forget, dtype, "grad_forget");
  const int64_t heads = in.input_gates.size[3], stride = PadRow(heads);
  float* sums = static_cast<float*>(workspace);
  const auto kernel = HWY_DYNAMIC_DISPATCH(MlstmGatesBack);
  const WideRowTasks tasks = MlstmGateTasks(in);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(in, g, tasks.begin(task), tasks.end(task), sums + 2 * task * stride);
  });
  const auto total = [&](const float* from, float* to) {
    if (to != nullptr) AddUpTasks(tasks.count(), from, 2 * stride, heads, to);
  };
  total(sums, g.grad_input_bias);
  total(sums + stride, g.grad_forget_bias);
}

void MlstmReadBackward(const MlstmReadCall& call, const float* grad_h,
                       float* grad_read, Executor& executor) {
  CheckMlstmRead(call);
  if (call.width > 0) WantMlstmData(call, "grad_h", grad_h);
  WantMlstmData(call, "grad_read", grad_read);
  const auto kernel = HWY_DYNAMIC_DISPATCH(MlstmReadsBack);
  const WideRowTasks tasks = MlstmReadTasks(call);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(call, grad_h, grad_read, tasks.begin(task), tasks.end(task));
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
