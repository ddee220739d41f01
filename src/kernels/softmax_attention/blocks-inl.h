// One block of queries against one block of keys: rows into scratch, masked
// scores, factors of dropout, sums. Scores are stored transposed, [keys,
// queries], so that lanes run over queries: maxima and sums over keys need no
// step across lanes, and only queries are ever transposed.

#if defined(TARN_KERNELS_SOFTMAX_ATTENTION_BLOCKS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_SOFTMAX_ATTENTION_BLOCKS_INL_H_
#undef TARN_KERNELS_SOFTMAX_ATTENTION_BLOCKS_INL_H_
#else
#define TARN_KERNELS_SOFTMAX_ATTENTION_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "kernels/dropout/dropout-inl.h"
#include "kernels/softmax_attention/block_geometry.h"
#include "kernels/softmax_attention/cap-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A hidden score. Maxima start at the lowest number, not here: the difference
// of two infinities would be NaN.
constexpr float kHidden = -std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// exp(x) for x <= 0, 0 below -87 at the latest, NaN for NaN. A lane's bits do
// not depend on the other lanes, which ExpNonPositive alone does not promise on
// targets without AVX-512.
HWY_INLINE VF ExpOfScore(VF x) {
#if HWY_TARGET <= HWY_AVX3
  return ExpNonPositive(x);
#else
  const DF d;
  const VF least = hn::Set(d, -87.0f);
  const VF e = ExpNonPositive(hn::IfThenElse(hn::Ge(x, least), x, least));
  return hn::IfThenElse(hn::IsNaN(x), x,
                        hn::IfThenZeroElse(hn::Lt(x, least), e));
#endif
}

// factor * rows [first, first + rows) of one head into [block, ld], with zeros
// after them and where `kept` is 0. Returns whether all that was read is
// finite.
HWY_MAYBE_UNUSED static HWY_NOINLINE bool LoadRows(const TensorView& from,
                                                   int64_t batch, int64_t first,
                                                   int64_t head, int64_t rows,
                                                   const float* kept,
                                                   float factor, int64_t block,
                                                   float* to, int64_t ld) {
  const DF d;
  const VF f = hn::Set(d, factor);
  VF not_finite = hn::Zero(d);  // x - x is 0 or NaN
  for (int64_t r = 0; r < rows; ++r) {
    if (kept != nullptr && kept[r] == 0.0f) {
      std::fill_n(to + r * ld, ld, 0.0f);
      continue;
    }
    MapRow<DType::kF32>(from.Row(batch, first + r, head), from.size[3],
                        to + r * ld, [&](VF x) HWY_ATTR {
                          not_finite = hn::Add(not_finite, hn::Sub(x, x));
                          return hn::Mul(x, f);
                        });
  }
  std::fill(to + std::max<int64_t>(rows, 0) * ld, to + block * ld, 0.0f);
  return hn::AllTrue(d, hn::Eq(not_finite, hn::Zero(d)));
}

// scale q and its transpose.
HWY_MAYBE_UNUSED static void LoadQueries(const BlockedCall& call,
                                         const BlockLayout& at, QueryBlock& q,
                                         float* w) {
  q.finite =
      LoadRows(call.in->queries, q.batch, q.first, q.head, q.rows, nullptr,
               call.options->scale, kQueryBlock, w + at.queries, at.key);
  Transpose(w + at.queries, at.key, kQueryBlock, at.key, w + at.queries_t,
            kQueryBlock);
}

// Keys and values of the block; those that are not kept are zeros.
HWY_MAYBE_UNUSED static void LoadKeyBlock(const BlockedCall& call,
                                          const BlockLayout& at,
                                          const QueryBlock& q, KeyBlock& k,
                                          float* w) {
  const BlockedAttentionInputs& in = *call.in;
  const int64_t rows = std::min(kKeyBlock, call.kept_keys(q.batch) - k.first);
  float* kept = nullptr;
  if (in.key_mask != nullptr) {
    kept = w + at.kept;
    const uint8_t* mask = in.key_mask + q.batch * call.key_len() + k.first;
    for (int64_t j = 0; j < kKeyBlock; ++j) {
      kept[j] = j < rows && mask[j] != 0 ? 1.0f : 0.0f;
      k.dropped = k.dropped || kept[j] == 0.0f;
    }
  }
  const bool keys = LoadRows(in.keys, q.batch, k.first, q.head, rows, kept,
                             1.0f, kKeyBlock, w + at.keys, at.key);
  const bool values = LoadRows(in.values, q.batch, k.first, q.head, rows, kept,
                               1.0f, kKeyBlock, w + at.values, at.value);
  k.finite = keys && values;
}

// Row of a plane for query i of the block: bias or 0, -infinity where hidden.
HWY_INLINE void PlaneRow(const BlockedAttentionInputs& in, const QueryBlock& q,
                         const KeyBlock& k, int64_t i, int64_t keys,
                         float* row) {
  std::fill_n(row, kKeyBlock, 0.0f);
  const auto start = [&](const auto& plane) {
    return plane.data + q.batch * plane.stride[0] + q.head * plane.stride[1] +
           (q.first + i) * plane.stride[2] + k.first * plane.stride[3];
  };
  if (in.bias.data != nullptr) {
    const float* bias = start(in.bias);
    for (int64_t j = 0; j < keys; ++j) row[j] = bias[j * in.bias.stride[3]];
  }
  if (in.mask.data != nullptr) {
    const uint8_t* mask = start(in.mask);
    for (int64_t j = 0; j < keys; ++j) {
      row[j] = mask[j * in.mask.stride[3]] != 0 ? row[j] : kHidden;
    }
  }
}

// plane_t [keys, queries]; false without a plane.
HWY_MAYBE_UNUSED static HWY_NOINLINE bool LoadPlanes(const BlockedCall& call,
                                                     const BlockLayout& at,
                                                     const QueryBlock& q,
                                                     const KeyBlock& k,
                                                     float* w) {
  if (call.in->bias.data == nullptr && call.in->mask.data == nullptr) {
    return false;
  }
  const int64_t keys = std::min(kKeyBlock, call.key_len() - k.first);
  for (int64_t i = 0; i < q.rows; ++i) {
    PlaneRow(*call.in, q, k, i, keys, w + at.plane + i * kKeyBlock);
  }
  std::fill(w + at.plane + q.rows * kKeyBlock,
            w + at.plane + kQueryBlock * kKeyBlock, 0.0f);
  Transpose(w + at.plane, kKeyBlock, kQueryBlock, kKeyBlock, w + at.plane_t,
            kQueryBlock);
  return true;
}

// c[j, i] = a_j . b_i for rows [k.begin, k.end): a [keys, ld], b_t [width,
// queries].
HWY_MAYBE_UNUSED static HWY_NOINLINE void DotRows(const float* a, int64_t ld,
                                                  const float* b_t,
                                                  int64_t width,
                                                  const QueryBlock& q,
                                                  const KeyBlock& k, float* c) {
  ForPanels(q.lanes, [&](auto n, int64_t i) HWY_ATTR {
    ForRowTiles(k.end - k.begin, [&](auto m, int64_t r) HWY_ATTR {
      Tile<decltype(m)::value, decltype(n)::value> tile;
      tile.Clear();
      const int64_t j = k.begin + r;
      tile.AddProduct(a + j * ld, ld, 1, b_t + i, kQueryBlock, width);
      tile.Store(c + j * kQueryBlock + i, kQueryBlock);
    });
  });
}

// scores_t = c tanh(scores_t / c); for the gradient also the slope of that,
// 1 - tanh^2.
HWY_MAYBE_UNUSED static HWY_NOINLINE void CapScores(const BlockedCall& call,
                                                    const BlockLayout& at,
                                                    const QueryBlock& q,
                                                    const KeyBlock& k,
                                                    float* w) {
  const DF d;
  const float cap = call.options->softcap;
  const VF size = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  for (int64_t j = k.begin; j < k.end; ++j) {
    for (int64_t i = 0; i < q.lanes; i += kLanes) {
      const int64_t pair = j * kQueryBlock + i;
      const VF t =
          TanhOfScore(hn::Mul(hn::LoadU(d, w + at.scores_t + pair), inverse));
      hn::StoreU(hn::Mul(size, t), d, w + at.scores_t + pair);
      if (at.backward) {
        hn::StoreU(hn::NegMulAdd(t, t, hn::Set(d, 1.0f)), d,
                   w + at.slopes_t + pair);
      }
    }
  }
}

// scores_t = K (scale Q)^T + bias, hidden pairs -infinity whatever they held.
HWY_MAYBE_UNUSED static HWY_NOINLINE void MaskedScores(const BlockedCall& call,
                                                       const BlockLayout& at,
                                                       const QueryBlock& q,
                                                       const KeyBlock& k,
                                                       float* w) {
  const DF d;
  const VF hidden = hn::Set(d, kHidden);
  DotRows(w + at.keys, at.key, w + at.queries_t, call.d_key(), q, k,
          w + at.scores_t);
  if (call.options->softcap > 0.0f) CapScores(call, at, q, k, w);
  const bool planes = LoadPlanes(call, at, q, k, w);
  if (!planes && !k.ranges && !k.dropped) return;
  if (k.ranges) {  // small integers, exact as floats
    for (int64_t r = 0; r < kQueryBlock; ++r) {
      w[at.range_begin + r] = static_cast<float>(
          std::clamp<int64_t>(q.row[r].begin - k.first, 0, kKeyBlock));
      w[at.range_end + r] = static_cast<float>(
          std::clamp<int64_t>(q.row[r].end - k.first, 0, kKeyBlock));
    }
  }
  for (int64_t j = k.begin; j < k.end; ++j) {
    float* row = w + at.scores_t + j * kQueryBlock;
    if (k.dropped && w[at.kept + j] == 0.0f) {
      std::fill_n(row, kQueryBlock, kHidden);
      continue;
    }
    const VF position = hn::Set(d, static_cast<float>(j));
    for (int64_t i = 0; i < q.lanes; i += kLanes) {
      VF score = hn::LoadU(d, row + i);
      if (planes) {
        const VF plane = hn::LoadU(d, w + at.plane_t + j * kQueryBlock + i);
        score = hn::IfThenElse(hn::Eq(plane, hidden), hidden,
                               hn::Add(score, plane));
      }
      if (k.ranges) {
        const auto allowed =
            hn::And(hn::Ge(position, hn::LoadU(d, w + at.range_begin + i)),
                    hn::Lt(position, hn::LoadU(d, w + at.range_end + i)));
        score = hn::IfThenElse(allowed, score, hidden);
      }
      hn::StoreU(score, d, row + i);
    }
  }
}

// factors_t [keys, queries] of the block's pairs. A block of dropout holds two
// blocks of keys: it is drawn for the first one visited, and `drawn` is the one
// that is in scratch.
HWY_MAYBE_UNUSED static HWY_NOINLINE void LoadFactors(
    const BlockedCall& call, const BlockLayout& at, const QueryBlock& q,
    const KeyBlock& k, int64_t& drawn, float* w) {
  const int64_t block = k.first / kDropoutBlock;
  if (block != drawn) {
    const int64_t blocks = (call.key_len() + kDropoutBlock - 1) / kDropoutBlock;
    const int64_t row =
        (q.batch * call.heads() + q.head) * call.seq_len() + q.first;
    for (int64_t i = 0; i < q.rows; ++i) {
      BlockScales(call.dropout, (row + i) * blocks + block,
                  w + at.factors + i * kDropoutBlock);
    }
    std::fill(w + at.factors + q.rows * kDropoutBlock,
              w + at.factors + kQueryBlock * kDropoutBlock, 0.0f);
    drawn = block;
  }
  Transpose(w + at.factors + k.first % kDropoutBlock, kDropoutBlock,
            kQueryBlock, kKeyBlock, w + at.factors_t, kQueryBlock);
}

// A block's product: scalar (r, p) of A at a[r * row + p * col], B [depth,
// ldb].
struct BlockProduct {
  const float* a;
  int64_t row, col;
  const float* b;
  int64_t ldb, rows, depth;
};

// C += A B; rows are covered in fours, so A and C reach to the next multiple.
// If not finite, entries of A that are 0 touch nothing, not even by a product.
// Both ways are the same chain of multiply-adds for each element.
HWY_MAYBE_UNUSED static HWY_NOINLINE void AddBlockProduct(const BlockProduct& p,
                                                          bool finite,
                                                          int64_t columns,
                                                          float* c,
                                                          int64_t ldc) {
  const DF d;
  if (HWY_LIKELY(finite)) {
    ForPanels(columns, [&](auto n, int64_t v) HWY_ATTR {
      ForRowTiles((p.rows + 3) / 4 * 4, [&](auto m, int64_t r) HWY_ATTR {
        Tile<decltype(m)::value, decltype(n)::value> tile;
        tile.Load(c + r * ldc + v, ldc);
        tile.AddProduct(p.a + r * p.row, p.row, p.col, p.b + v, p.ldb, p.depth);
        tile.Store(c + r * ldc + v, ldc);
      });
    });
    return;
  }
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t t = 0; t < p.depth; ++t) {
      const float a = p.a[r * p.row + t * p.col];
      if (a == 0.0f) continue;
      const VF factor = hn::Set(d, a);
      for (int64_t v = 0; v < columns; v += kLanes) {
        float* to = c + r * ldc + v;
        hn::StoreU(hn::MulAdd(factor, hn::LoadU(d, p.b + t * p.ldb + v),
                              hn::LoadU(d, to)),
                   d, to);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
