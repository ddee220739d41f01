#include "kernels/gate_correction/gate_correction.h"

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "kernels/row_tasks.h"
#include "kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gate_correction/gate_correction.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/panels-inl.h"
#include "kernels/pieces-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The rows of one head, each a pointer to its first byte.
struct CorrectionRow {
  const char *o, *r, *k, *v, *g;
  const float* weight;
};

// f(i, n) for a row vector by vector; n may exceed the lanes.
template <class F>
HWY_INLINE void ForVectors(int64_t width, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t i = 0; i < width; i += lanes) f(i, width - i);
}

template <DType kType>
HWY_INLINE VF EntryOf(const char* row, int64_t i, int64_t n) {
  return LoadPiece<kType>(row + i * static_cast<int64_t>(DTypeBytes(kType)), n);
}

template <DType kType>
HWY_INLINE void SetEntry(VF x, char* row, int64_t i, int64_t n) {
  StorePiece<kType>(x, row + i * static_cast<int64_t>(DTypeBytes(kType)), n);
}

HWY_INLINE VF WeightOf(const CorrectionRow& row, int64_t i, int64_t n) {
  return LoadPiece<DType::kF32>(row.weight + i, n);
}

template <DType kType>
static HWY_INLINE VF SeenOf(const CorrectionRow& row, int64_t width) {
  VF sum = hn::Zero(DF());
  ForVectors(width, [&](int64_t i, int64_t n) HWY_ATTR {
    const VF product =
        hn::Mul(EntryOf<kType>(row.r, i, n), EntryOf<kType>(row.k, i, n));
    sum = hn::MulAdd(product, WeightOf(row, i, n), sum);
  });
  return hn::SumOfLanes(DF(), sum);
}

template <DType kType>
static HWY_INLINE void CorrectHead(const CorrectionRow& row, int64_t width,
                                   char* out) {
  const VF seen = SeenOf<kType>(row, width);
  ForVectors(width, [&](int64_t i, int64_t n) HWY_ATTR {
    const VF y = hn::MulAdd(seen, EntryOf<kType>(row.v, i, n),
                            EntryOf<kType>(row.o, i, n));
    SetEntry<kType>(hn::Mul(y, EntryOf<kType>(row.g, i, n)), out, i, n);
  });
}

struct CorrectionGradientRow {
  const char* grad_out;
  char *o, *r, *k, *v, *g;
  float* sums;
};

template <DType kType>
static HWY_INLINE void CorrectHeadBack(const CorrectionRow& row,
                                       const CorrectionGradientRow& grad,
                                       int64_t width) {
  const VF seen = SeenOf<kType>(row, width);
  VF sum = hn::Zero(DF());
  ForVectors(width, [&](int64_t i, int64_t n) HWY_ATTR {
    const VF flow = EntryOf<kType>(grad.grad_out, i, n);
    const VF v = EntryOf<kType>(row.v, i, n);
    const VF y = hn::MulAdd(seen, v, EntryOf<kType>(row.o, i, n));
    const VF inner = hn::Mul(flow, EntryOf<kType>(row.g, i, n));
    sum = hn::MulAdd(inner, v, sum);
    SetEntry<kType>(hn::Mul(flow, y), grad.g, i, n);
    SetEntry<kType>(inner, grad.o, i, n);
    SetEntry<kType>(hn::Mul(seen, inner), grad.v, i, n);
  });
  const VF back = hn::SumOfLanes(DF(), sum);
  ForVectors(width, [&](int64_t i, int64_t n) HWY_ATTR {
    const VF r = EntryOf<kType>(row.r, i, n), k = EntryOf<kType>(row.k, i, n);
    const VF by_weight = hn::Mul(back, WeightOf(row, i, n));
    const VF total = LoadPiece<DType::kF32>(grad.sums + i, n);
    StorePiece<DType::kF32>(hn::MulAdd(hn::Mul(back, r), k, total),
                            grad.sums + i, n);
    SetEntry<kType>(hn::Mul(by_weight, k), grad.r, i, n);
    SetEntry<kType>(hn::Mul(by_weight, r), grad.k, i, n);
  });
}

static CorrectionRow RowsAt(const GateCorrectionInputs& in, int64_t entry,
                            int64_t head) {
  const int64_t at = entry * static_cast<int64_t>(DTypeBytes(in.dtype));
  const auto row = [&](const void* data) {
    return static_cast<const char*>(data) + at;
  };
  return {row(in.o), row(in.r), row(in.k),
          row(in.v), row(in.g), in.weight + head * in.width};
}

static void CorrectTokens(const GateCorrectionInputs& in, char* out,
                          int64_t begin, int64_t end) {
  WithDType(in.dtype, [&](auto type) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    for (int64_t row = begin * in.heads; row < end * in.heads; ++row) {
      const int64_t entry = row * in.width;
      CorrectHead<kType>(RowsAt(in, entry, row % in.heads), in.width,
                         out + entry * static_cast<int64_t>(DTypeBytes(kType)));
    }
  });
}

static void CorrectTokensBack(const GateCorrectionInputs& in,
                              const GateCorrectionGradients& grad,
                              int64_t begin, int64_t end, float* sums) {
  std::fill(sums, sums + in.heads * in.width, 0.0f);
  WithDType(in.dtype, [&](auto type) HWY_ATTR {
    constexpr DType kType = decltype(type)::value;
    for (int64_t row = begin * in.heads; row < end * in.heads; ++row) {
      const int64_t entry = row * in.width, head = row % in.heads;
      const int64_t at = entry * static_cast<int64_t>(DTypeBytes(kType));
      const auto to = [&](void* data) { return static_cast<char*>(data) + at; };
      CorrectHeadBack<kType>(
          RowsAt(in, entry, head),
          {static_cast<const char*>(grad.grad_out) + at, to(grad.o), to(grad.r),
           to(grad.k), to(grad.v), to(grad.g), sums + head * in.width},
          in.width);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(CorrectTokens);
HWY_EXPORT(CorrectTokensBack);

void WantCorrectionData(const GateCorrectionInputs& in, const char* name,
                        const void* data) {
  if (data == nullptr && in.tokens * in.heads * in.width > 0) {
    throw ArgumentError(StrCat("gate_correction: ", name), "data",
                        "a null pointer");
  }
}

void CheckGateCorrection(const GateCorrectionInputs& in) {
  if (in.tokens < 0 || in.heads < 0 || in.width < 0) {
    throw ShapeError("gate_correction: o", "sizes of at least 0",
                     ShapeText({in.tokens, in.heads, in.width}));
  }
  WantCorrectionData(in, "o", in.o);
  WantCorrectionData(in, "r", in.r);
  WantCorrectionData(in, "k", in.k);
  WantCorrectionData(in, "v", in.v);
  WantCorrectionData(in, "g", in.g);
  WantCorrectionData(in, "weight", in.weight);
}

WideRowTasks CorrectionTasks(const GateCorrectionInputs& in) {
  return {in.tokens, in.heads * in.width, 64};
}

}  // namespace

void GateCorrectionForward(const GateCorrectionInputs& in, void* out,
                           Executor& executor) {
  CheckGateCorrection(in);
  WantCorrectionData(in, "out", out);
  const auto kernel = HWY_DYNAMIC_DISPATCH(CorrectTokens);
  const WideRowTasks tasks = CorrectionTasks(in);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(in, static_cast<char*>(out), tasks.begin(task), tasks.end(task));
  });
}

size_t GateCorrectionGradientBytes(const GateCorrectionInputs& in) {
  return static_cast<size_t>(CorrectionTasks(in).count() *
                             PadRow(in.heads * in.width)) *
         sizeof(float);
}

void GateCorrectionBackward(const GateCorrectionInputs& in,
                            const GateCorrectionGradients& grad,
                            Executor& executor, void* workspace) {
  CheckGateCorrection(in);
  WantCorrectionData(in, "grad_out", grad.grad_out);
  WantCorrectionData(in, "grad_o", grad.o);
  WantCorrectionData(in, "grad_r", grad.r);
  WantCorrectionData(in, "grad_k", grad.k);
  WantCorrectionData(in, "grad_v", grad.v);
  WantCorrectionData(in, "grad_g", grad.g);
  WantCorrectionData(in, "grad_weight", grad.weight);
  const auto kernel = HWY_DYNAMIC_DISPATCH(CorrectTokensBack);
  const WideRowTasks tasks = CorrectionTasks(in);
  float* sums = static_cast<float*>(workspace);
  const int64_t row = in.heads * in.width, stride = PadRow(row);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(in, grad, tasks.begin(task), tasks.end(task), sums + task * stride);
  });
  AddUpTasks(tasks.count(), sums, stride, row, grad.weight);
}

}  // namespace tarn
#endif  // HWY_ONCE
