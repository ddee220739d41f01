#include "kernels/adam/adam.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adam/adam.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// The factors as vectors.
struct AdamVectors {
  VF decay, minus_rate, root_factor, eps, one_minus_beta1, beta2,
      one_minus_beta2, gradient_scale;
  bool adaptive;
};

HWY_INLINE AdamVectors ToVectors(const AdamFactors& f, float scale) {
  const DF d;
  const auto set = [d](double x)
                       HWY_ATTR { return hn::Set(d, static_cast<float>(x)); };
  return {set(f.decay),     set(-f.rate),     set(f.root_factor),
          set(f.eps),       set(1 - f.beta1), set(f.beta2),
          set(1 - f.beta2), set(scale),       f.adaptive};
}

struct AdamVector {
  VF parameter, m, v;
};

HWY_INLINE AdamVector Update(const AdamVectors& f, AdamVector x, VF gradient) {
  const VF g = hn::Mul(gradient, f.gradient_scale);
  x.m = hn::MulAdd(f.one_minus_beta1, hn::Sub(g, x.m), x.m);
  x.v = hn::MulAdd(hn::Mul(f.one_minus_beta2, g), g, hn::Mul(x.v, f.beta2));
  VF step = x.m;
  if (f.adaptive) {
    step = hn::Div(x.m, hn::MulAdd(hn::Sqrt(x.v), f.root_factor, f.eps));
  }
  x.parameter = hn::MulAdd(step, f.minus_rate, hn::Mul(x.parameter, f.decay));
  return x;
}

static void AdamRun(const AdamFactors& factors, const AdamTensor& t,
                    int64_t first, int64_t last) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const AdamVectors f = ToVectors(factors, t.gradient_scale);
  int64_t i = first;
  for (; i + lanes <= last; i += lanes) {
    const AdamVector x = Update(f,
                                {hn::LoadU(d, t.parameter + i),
                                 hn::LoadU(d, t.m + i), hn::LoadU(d, t.v + i)},
                                hn::LoadU(d, t.gradient + i));
    hn::StoreU(x.parameter, d, t.parameter + i);
    hn::StoreU(x.m, d, t.m + i);
    hn::StoreU(x.v, d, t.v + i);
  }
  if (i == last) return;
  const int64_t n = last - i;
  const AdamVector x = Update(f,
                              {LoadPart(t.parameter + i, n),
                               LoadPart(t.m + i, n), LoadPart(t.v + i, n)},
                              LoadPart(t.gradient + i, n));
  StorePart(x.parameter, t.parameter + i, n);
  StorePart(x.m, t.m + i, n);
  StorePart(x.v, t.v + i, n);
}

static double SquareRun(const float* x, int64_t n) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VF v = hn::LoadU(d, x + i);
    sum = hn::MulAdd(v, v, sum);
  }
  if (i < n) {
    const VF v = LoadPart(x + i, n - i);
    sum = hn::MulAdd(v, v, sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(AdamRun);
HWY_EXPORT(SquareRun);

// Elements of one task: four arrays of this length stay in L2.
constexpr int64_t kRun = 16384;

struct Run {
  size_t tensor;
  int64_t first, last;
};

int64_t RunsIn(int64_t size) { return (size + kRun - 1) / kRun; }

template <class Tensor>
int64_t RunsIn(const std::vector<Tensor>& tensors) {
  int64_t runs = 0;
  for (const Tensor& t : tensors) runs += RunsIn(t.size);
  return runs;
}

// The run of a task, found by counting: a step allocates nothing.
template <class Tensor>
Run RunOfTask(const std::vector<Tensor>& tensors, int64_t task) {
  size_t i = 0;
  for (; task >= RunsIn(tensors[i].size); ++i) task -= RunsIn(tensors[i].size);
  const int64_t first = task * kRun;
  return {i, first, std::min(first + kRun, tensors[i].size)};
}

void WantData(const char* name, const void* data, int64_t size) {
  if (size < 0) {
    throw ShapeError(StrCat("adam: ", name), "a size of at least 0",
                     StrCat(size));
  }
  if (data == nullptr && size > 0) {
    throw ArgumentError(StrCat("adam: ", name), "data", "a null pointer");
  }
}

// The factor of RAdam's rate, or 0 while its variance is not yet tractable.
double Rectifier(const AdamStepOptions& o, double power2) {
  const double rho_inf = 2 / (1 - o.beta2) - 1;
  const double rho =
      rho_inf - 2 * static_cast<double>(o.update) * power2 / (1 - power2);
  if (rho < 5) return 0;
  return std::sqrt((1 - power2) * (rho - 4) * (rho - 2) * rho_inf /
                   ((rho_inf - 4) * (rho_inf - 2) * rho));
}

}  // namespace

AdamFactors MakeAdamFactors(const AdamStepOptions& o) {
  const auto want = [](const char* name, bool good, const char* wanted,
                       double given) {
    if (!good) {
      throw ArgumentError(StrCat("adam: ", name), wanted, StrCat(given));
    }
  };
  want("update", o.update >= 1, "at least 1", static_cast<double>(o.update));
  want("lr", o.lr >= 0, "a number >= 0", o.lr);
  want("eps", o.eps >= 0, "a number >= 0", o.eps);
  want("weight_decay", o.weight_decay >= 0, "a number >= 0", o.weight_decay);
  want("beta1", o.beta1 >= 0 && o.beta1 < 1, "a number in [0, 1)", o.beta1);
  want("beta2", o.beta2 >= 0 && o.beta2 < 1, "a number in [0, 1)", o.beta2);
  const double k = static_cast<double>(o.update);
  const double power2 = std::pow(o.beta2, k);
  AdamFactors f = {1 - o.lr * o.weight_decay,
                   o.lr / (1 - std::pow(o.beta1, k)),
                   1.0,
                   o.eps,
                   o.beta1,
                   o.beta2,
                   true};
  if (o.kind == AdamKind::kAdamW) {
    f.root_factor = 1 / std::sqrt(1 - power2);
    return f;
  }
  const double rectifier = Rectifier(o, power2);
  f.adaptive = rectifier > 0;
  if (f.adaptive) f.rate *= rectifier;
  return f;
}

void AdamStep(const AdamStepOptions& options,
              const std::vector<AdamTensor>& tensors, Executor& executor) {
  const AdamFactors factors = MakeAdamFactors(options);
  for (const AdamTensor& t : tensors) {
    WantData("parameter", t.parameter, t.size);
    WantData("gradient", t.gradient, t.size);
    WantData("m", t.m, t.size);
    WantData("v", t.v, t.size);
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(AdamRun);
  executor.ParallelFor(RunsIn(tensors), [&](int64_t task, int) {
    const Run run = RunOfTask(tensors, task);
    kernel(factors, tensors[run.tensor], run.first, run.last);
  });
}

std::vector<double> SquaredNorms(const std::vector<GradientView>& tensors,
                                 Executor& executor) {
  for (const GradientView& t : tensors) WantData("gradient", t.data, t.size);
  const auto kernel = HWY_DYNAMIC_DISPATCH(SquareRun);
  const int64_t runs = RunsIn(tensors);
  std::vector<double> partial(runs);
  executor.ParallelFor(runs, [&](int64_t task, int) {
    const Run run = RunOfTask(tensors, task);
    partial[task] =
        kernel(tensors[run.tensor].data + run.first, run.last - run.first);
  });
  // The sums are taken in task order: the same bits for any number of threads.
  std::vector<double> sums(tensors.size(), 0.0);
  int64_t task = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t last = task + RunsIn(tensors[i].size);
    for (; task < last; ++task) sums[i] += partial[task];
  }
  return sums;
}

}  // namespace tarn
#endif  // HWY_ONCE
