// What both sweeps of the gradient do in a chunk: load dL/do divided by the
// denominators, the gradient of the scores, the slope of the feature map.

#if defined(TARN_KERNELS_LINEAR_ATTENTION_GRADIENT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_LINEAR_ATTENTION_GRADIENT_INL_H_
#undef TARN_KERNELS_LINEAR_ATTENTION_GRADIENT_INL_H_
#else
#define TARN_KERNELS_LINEAR_ATTENTION_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/linear_attention/chunk-inl.h"
#include "kernels/linear_attention/gradient.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What one call of a sweep knows about its chunk.
struct ChunkContext {
  const BackwardTask& task;
  const Sequence& s;
  const ChunkRows& rows;
  const BackwardLayout& at;
  float* w;
  int64_t head;  // the query/key head at work
  float* State(int64_t g) const {
    return w + at.state + Slot(g) * at.state_floats;
  }
  float* Normalizer(int64_t g) const {
    return w + at.normalizer + Slot(g) * at.key;
  }
  int64_t Slot(int64_t g) const {
    return (head - task.first_head) * task.group + g;
  }
  bool has_denominator() const {
    return task.options->denominator != Denominator::kNone;
  }
  // Row of the query tensors that is row r of the chunk; the same for the key
  // tensors.
  int64_t QueryToken(int64_t r) const {
    return s.query_at + rows.position + r - s.offset;
  }
  int64_t KeyToken(int64_t r) const { return s.key_at + rows.position + r; }
};

// G = g / d into `row` and returns g . o / d; whole vectors.
template <DType kType>
HWY_INLINE float LoadGradRow(const char* grad, const char* out, float inverse,
                             int64_t width, float* row) {
  const DF d;
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  const VF factor = hn::Set(d, inverse);
  VF dot = hn::Zero(d);
  for (int64_t i = 0; i < width; i += kLanes) {
    const VF g = hn::Mul(LoadVector<kType>(d, grad + i * kBytes), factor);
    dot = hn::MulAdd(g, LoadVector<kType>(d, out + i * kBytes), dot);
    hn::StoreU(g, d, row + i);
  }
  return hn::GetLane(hn::SumOfLanes(d, dot));
}

// G and e of a value head's chunk; zero rows where there is no query or the
// row was empty.
HWY_MAYBE_UNUSED static HWY_NOINLINE void LoadGradOut(const ChunkContext& c,
                                                      int64_t value_head,
                                                      RowPrefetcher& prefetch) {
  const LinearAttentionGradients& grad = *c.task.grad;
  const LinearAttentionInputs& in = *c.task.in;
  const int64_t width = in.values.size[3];
  float* rows = c.w + c.at.grad_out;
  float* row_out = c.w + c.at.staging;  // scratch row for o
  float* e = c.w + c.at.grad_den;
  std::memset(e, 0, static_cast<size_t>(c.at.chunk) * sizeof(float));
  ZeroRows(rows, 0, c.rows.query_begin, c.at.value);
  for (int64_t r = c.rows.query_begin; r < c.rows.query_end; ++r) {
    prefetch.Next();
    const int64_t t = c.QueryToken(r);
    float* row = rows + r * c.at.value;
    const char* from = grad.grad_out.Row(c.s.batch, t, value_head);
    if (!c.has_denominator()) {
      LoadRow(grad.grad_out.dtype, from, width, row);
      continue;
    }
    const float denominator =
        grad.denominators[(c.s.batch * in.queries.size[1] + t) *
                              in.values.size[2] +
                          value_head];
    if (denominator == 0.0f) {  // empty row: no gradient for any grad_out
      ZeroRows(row, 0, 1, c.at.value);
      continue;
    }
    const float d = GradientDivisor(c.task.options->denominator, denominator);
    const char* out = grad.out.Row(c.s.batch, t, value_head);
    if (width == c.at.value) {
      WithDType(grad.out.dtype, [&](auto type) HWY_ATTR {
        e[r] = -LoadGradRow<decltype(type)::value>(from, out, 1.0f / d, width,
                                                   row);
      });
      continue;
    }
    LoadRow(grad.grad_out.dtype, from, width, row);
    LoadRow(grad.out.dtype, out, width, row_out);
    e[r] = -RowDot(row, row_out, c.at.value) / d;
    ScaleRow(row, c.at.value, 1.0f / d);
  }
  ZeroRows(rows, std::max(c.rows.query_begin, c.rows.query_end), c.at.chunk,
           c.at.value);
}

template <FeatureMap kMap>
HWY_INLINE void MapGradientRow(const float* features, const float* gradient,
                               float factor, int64_t padded, float* to) {
  const DF d;
  const VF f = hn::Set(d, factor);
  for (int64_t i = 0; i < padded; i += kLanes) {
    const VF x = hn::LoadU(d, features + i), g = hn::LoadU(d, gradient + i);
    // factor * slope is near 1 where factor * gradient would overflow. A slope
    // of 0 of relu hides a gradient of NaN, which a product would not.
    hn::StoreU(kMap == FeatureMap::kRelu
                   ? FeatureSlopeTimes<kMap>(x, hn::Mul(g, f))
                   : hn::Mul(FeatureSlopeTimes<kMap>(x, f), g),
               d, to + i);
  }
}

// to[r] = slope * factor * gradient over one padded row; `to` may be one of the
// others. The default map is inline, as in LoadFeatures.
HWY_MAYBE_UNUSED static HWY_NOINLINE void OtherGradientRow(
    FeatureMap map, const float* features, const float* gradient, float factor,
    int64_t padded, float* to) {
  WithFeatureMap(map, [&](auto m) HWY_ATTR {
    MapGradientRow<decltype(m)::value>(features, gradient, factor, padded, to);
  });
}
HWY_INLINE void FeatureGradientRow(FeatureMap map, const float* features,
                                   const float* gradient, float factor,
                                   int64_t padded, float* to) {
  if (HWY_LIKELY(map == FeatureMap::kElu1)) {
    MapGradientRow<FeatureMap::kElu1>(features, gradient, factor, padded, to);
  } else {
    OtherGradientRow(map, features, gradient, factor, padded, to);
  }
}

// Stores dq = slope * factor * da of the chunk's rows; da is overwritten. phi:
// features without their factors, which are 1 unless `scaled`.
HWY_MAYBE_UNUSED static void StoreQueryGradients(const ChunkContext& c,
                                                 const float* phi, bool scaled,
                                                 float* da,
                                                 RowPrefetcher& prefetch) {
  const LinearAttentionOptions& options = *c.task.options;
  const TensorView& dq = c.task.grad->grad_queries;
  for (int64_t r = c.rows.query_begin; r < c.rows.query_end; ++r) {
    const float* features = phi + r * c.at.key;
    float* row = da + r * c.at.key;
    const float factor =
        scaled ? QueryFactor(options, features, c.at.key) : 1.0f;
    FeatureGradientRow(options.feature_map, features, row, factor, c.at.key,
                       row);
    StoreRow(dq.dtype, row, c.task.in->queries.size[3],
             dq.Row(c.s.batch, c.QueryToken(r), c.head));
    prefetch.Next();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
