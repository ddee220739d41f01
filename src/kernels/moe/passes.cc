#include "kernels/moe/passes.h"

#include <algorithm>
#include <cstring>

#include "kernels/row_tasks.h"

#ifndef TARN_MOE_PASSES_ONCE
#define TARN_MOE_PASSES_ONCE
namespace tarn {
// One row of HiddenGradient.
struct ExpertHiddenRow {
  const float *one, *three;
  float *back, *hidden, *grad_three;
};
}  // namespace tarn
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe/passes.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/activation/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace moe {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using namespace tarn::HWY_NAMESPACE;  // NOLINT: rows of the kernels

struct Bend {
  VF value, slope;
};

// The curve and its slope at x; a NaN stays a NaN.
template <ExpertActivation kActivation>
HWY_INLINE Bend BendAt(VF x) {
  const DF d;
  if constexpr (kActivation == ExpertActivation::kSilu) {
    const SiluCurve silu = SiluAt(x);
    return {silu.value, silu.slope};
  } else if constexpr (kActivation == ExpertActivation::kGelu) {
    const NormalCurve normal = NormalAt(x);
    return {hn::Mul(x, normal.below), GeluSlopeOf(x, normal)};
  } else if constexpr (kActivation == ExpertActivation::kGeluTanh) {
    const GeluTanhCurve curve = GeluTanhAt(x);
    const LogisticCurve l = LogisticAt(curve.z);
    // 0 and 1 at the infinities, as in GELU.
    const VF product = hn::Mul(hn::Mul(x, curve.slope), l.density);
    return {hn::Mul(x, l.below),
            hn::Add(l.below, hn::IfThenElse(hn::Eq(l.density, hn::Zero(d)),
                                            l.density, product))};
  } else {
    const VF relu = ReluOf(x);
    if constexpr (kActivation == ExpertActivation::kRelu2) {
      return {hn::Mul(relu, relu), hn::Add(relu, relu)};
    } else {
      const VF one = hn::Set(d, 1.0f);
      return {relu, hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), one)};
    }
  }
}

template <class F>
HWY_INLINE void WithActivation(ExpertActivation activation, const F& f) {
  using A = ExpertActivation;
  switch (activation) {
    case A::kSilu:
      return f(std::integral_constant<A, A::kSilu>());
    case A::kGelu:
      return f(std::integral_constant<A, A::kGelu>());
    case A::kGeluTanh:
      return f(std::integral_constant<A, A::kGeluTanh>());
    case A::kRelu:
      return f(std::integral_constant<A, A::kRelu>());
    case A::kRelu2:
      return f(std::integral_constant<A, A::kRelu2>());
  }
}

static void ActivationRow(ExpertActivation activation, const float* one,
                          const float* three, int64_t width, float* hidden) {
  WithActivation(activation, [=](auto kind) HWY_ATTR {
    constexpr ExpertActivation kKind = decltype(kind)::value;
    if (three == nullptr) {
      TransformRow(one, width, hidden,
                   [](VF x) HWY_ATTR { return BendAt<kKind>(x).value; });
      return;
    }
    CombineRows(one, three, width, hidden, [](VF x, VF y) HWY_ATTR {
      return hn::Mul(BendAt<kKind>(x).value, y);
    });
  });
}

// y = or += weight * x.
static void AddScaledRow(const float* x, float weight, bool first,
                         int64_t width, float* y) {
  const VF w = hn::Set(DF(), weight);
  if (first) {
    TransformRow(x, width, y, [=](VF v) HWY_ATTR { return hn::Mul(w, v); });
    return;
  }
  CombineRows(x, y, width, y,
              [=](VF v, VF sum) HWY_ATTR { return hn::MulAdd(w, v, sum); });
}

// Returns h . back of one row.
static float HiddenBackwardRow(ExpertActivation activation,
                               const ExpertHiddenRow& r, float weight,
                               int64_t width) {
  float dot = 0;
  WithActivation(activation, [&](auto kind) HWY_ATTR {
    constexpr ExpertActivation kKind = decltype(kind)::value;
    const DF d;
    const VF w = hn::Set(d, weight), ones = hn::Set(d, 1.0f);
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    VF sum = hn::Zero(d);
    for (int64_t i = 0; i < width; i += lanes) {
      const int64_t n = std::min(lanes, width - i);
      const bool whole = n == lanes;
      const auto load = [&](const float* p) HWY_ATTR {
        return whole ? hn::LoadU(d, p + i) : LoadPart(p + i, n);
      };
      const auto store = [&](VF x, float* p) HWY_ATTR {
        whole ? hn::StoreU(x, d, p + i) : StorePart(x, p + i, n);
      };
      const Bend bend = BendAt<kKind>(load(r.one));
      const VF three = r.three == nullptr ? ones : load(r.three);
      const VF back = load(r.back);
      const VF h = hn::Mul(bend.value, three);
      sum = hn::Add(sum,
                    whole ? hn::Mul(h, back) : KeepFirst(hn::Mul(h, back), n));
      const VF weighted = hn::Mul(w, back);
      store(hn::Mul(w, h), r.hidden);
      if (r.grad_three != nullptr) {
        store(hn::Mul(weighted, bend.value), r.grad_three);
      }
      store(hn::Mul(hn::Mul(weighted, three), bend.slope), r.back);
    }
    dot = hn::GetLane(hn::SumOfLanes(d, sum));
  });
  return dot;
}

}  // namespace HWY_NAMESPACE
}  // namespace moe
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace moe {
HWY_EXPORT(ActivationRow);
HWY_EXPORT(AddScaledRow);
HWY_EXPORT(HiddenBackwardRow);

// With a single target their names are looked up here.
static auto ActivationKernel() { return HWY_DYNAMIC_DISPATCH(ActivationRow); }
static auto AddScaledKernel() { return HWY_DYNAMIC_DISPATCH(AddScaledRow); }
static auto HiddenKernel() { return HWY_DYNAMIC_DISPATCH(HiddenBackwardRow); }
}  // namespace moe

void GatherTokens(const ExpertsProblem& p, const ExpertGroups& groups,
                  const float* x, float* rows, Executor& executor) {
  const size_t bytes = static_cast<size_t>(p.d_model) * sizeof(float);
  if (bytes == 0) return;
  const RowTasks tasks(groups.assignments);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    for (int64_t r = tasks.begin(task); r < tasks.end(task); ++r) {
      const int64_t t = groups.order[r] / p.top_k;
      std::memcpy(rows + r * p.d_model, x + t * p.d_model, bytes);
    }
  });
}

void ExpertActivationRows(ExpertActivation activation, int64_t rows,
                          int64_t width, const float* product1,
                          const float* product3, float* hidden,
                          Executor& executor) {
  const auto kernel = moe::ActivationKernel();
  const RowTasks tasks(rows);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    for (int64_t r = tasks.begin(task); r < tasks.end(task); ++r) {
      kernel(activation, product1 + r * width,
             product3 == nullptr ? nullptr : product3 + r * width, width,
             hidden + r * width);
    }
  });
}

void CombineExperts(const ExpertsProblem& p, const ExpertGroups& groups,
                    const float* weights, const float* rows, float* y,
                    Executor& executor) {
  const auto kernel = moe::AddScaledKernel();
  const RowTasks tasks(p.tokens);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    for (int64_t t = tasks.begin(task); t < tasks.end(task); ++t) {
      for (int64_t j = 0; j < p.top_k; ++j) {
        const int64_t a = t * p.top_k + j;
        kernel(rows + groups.places[a] * p.d_model,
               weights == nullptr ? 1.0f : weights[a], j == 0, p.d_model,
               y + t * p.d_model);
      }
    }
  });
}

void AddExpertRow(const float* row, float weight, bool first, int64_t width,
                  float* y) {
  moe::AddScaledKernel()(row, weight, first, width, y);
}

void ExpertHiddenBackward(const ExpertsProblem& p, const ExpertGroups& groups,
                          const HiddenGradient& g, Executor& executor) {
  const auto kernel = moe::HiddenKernel();
  const RowTasks tasks(groups.assignments);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    for (int64_t r = tasks.begin(task); r < tasks.end(task); ++r) {
      const int64_t at = r * p.d_ff, a = groups.order[r];
      const auto row = [&](auto* data) {
        return data == nullptr ? nullptr : data + at;
      };
      g.grad_weights[a] = kernel(p.activation,
                                 {row(g.product1), row(g.product3), row(g.back),
                                  row(g.hidden), row(g.grad_three)},
                                 p.weights[a], p.d_ff);
    }
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
