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
    return w + at.state + Slot(g) * at.key * at.value;
  }
  float* Normalizer(int64_t g) const {
    return w + at.normalizer + Slot(g) * at.key;
  }
  int64_t Slot(int64_t g) const {
    return (head - task.first_head) * task.group + g;
  }
};

// G and e of a value head's chunk; zero rows where there is no query or the
// row was empty.
HWY_MAYBE_UNUSED static void LoadGradOut(const ChunkContext& c,
                                         int64_t value_head) {
  const LinearAttentionGradients& grad = *c.task.grad;
  const LinearAttentionOptions& options = *c.task.options;
  const LinearAttentionInputs& in = *c.task.in;
  float* rows = c.w + c.at.grad_out;
  float* row_out = c.w + c.at.grad_col;  // scratch row for o
  float* e = c.w + c.at.grad_den;
  std::memset(e, 0, static_cast<size_t>(c.at.chunk) * sizeof(float));
  ZeroRows(rows, 0, c.rows.query_begin, c.at.value);
  for (int64_t r = c.rows.query_begin; r < c.rows.query_end; ++r) {
    const int64_t t = c.s.query_at + c.rows.position + r - c.s.offset;
    float* row = rows + r * c.at.value;
    float inverse = 1.0f;
    if (options.denominator != Denominator::kNone) {
      const float d = grad.denominators[(c.s.batch * in.queries.size[1] + t) *
                                            in.values.size[2] +
                                        value_head];
      if (d == 0.0f) {  // empty row: no gradient, whatever grad_out holds
        ZeroRows(row, 0, 1, c.at.value);
        continue;
      }
      inverse = 1.0f / d;
    }
    const char* from = grad.grad_out.Row(c.s.batch, t, value_head);
    PrefetchRow(grad.grad_out, from, c.s.ahead, in.values.size[3]);
    LoadRow(grad.grad_out.dtype, from, in.values.size[3], row);
    if (options.denominator != Denominator::kNone) {
      from = grad.out.Row(c.s.batch, t, value_head);
      PrefetchRow(grad.out, from, c.s.ahead, in.values.size[3]);
      LoadRow(grad.out.dtype, from, in.values.size[3], row_out);
      e[r] = -RowDot(row, row_out, c.at.value) * inverse;
      ScaleRow(row, c.at.value, inverse);
    }
  }
  ZeroRows(rows, std::max(c.rows.query_begin, c.rows.query_end), c.at.chunk,
           c.at.value);
}

// dP = tril(G V^T + e 1^T), from values_t = V^T.
HWY_MAYBE_UNUSED static void GradScores(const ChunkContext& c) {
  float* scores = c.w + c.at.grad_scores;
  const float* e = c.w + c.at.grad_den;
  LowerScores(c.w + c.at.grad_out, c.at.value, c.w + c.at.values_t, c.at.chunk,
              c.rows.rows, c.at.value, scores);
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < c.rows.rows; ++i) {
    float* row = scores + i * c.at.chunk;
    const VF add = hn::Set(d, e[i]);
    for (int64_t j = 0; j < (i / kBlock + 1) * kBlock; j += lanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, row + j), add), d, row + j);
    }
  }
  MaskDiagonal(scores, c.at.chunk, c.rows.rows);
}

// dst = slope(x) * factor * gradient of phi; slope of elu+1 is min(phi, 1).
HWY_MAYBE_UNUSED static void StoreFeatureGradient(FeatureMap map,
                                                  const float* features,
                                                  const float* gradient,
                                                  float factor, int64_t padded,
                                                  float* row) {
  const DF d;
  const VF f = hn::Set(d, factor);
  const VF one = hn::Set(d, 1.0f);
  for (int64_t i = 0; i < padded; i += static_cast<int64_t>(hn::Lanes(d))) {
    VF g = hn::Mul(hn::LoadU(d, gradient + i), f);
    if (map == FeatureMap::kElu1) {
      g = hn::Mul(g, hn::Min(hn::LoadU(d, features + i), one));
    }
    hn::StoreU(g, d, row + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
