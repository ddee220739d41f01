// One chunk of a gated recurrence in scratch: its rows, the decays between its
// tokens as products of factors, its scores. No logarithm is ever summed: a
// factor exp(g) of 0 is an exact reset, and no inf - inf arises.

#if defined(TARN_KERNELS_RECURRENCE_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RECURRENCE_CHUNK_INL_H_
#undef TARN_KERNELS_RECURRENCE_CHUNK_INL_H_
#else
#define TARN_KERNELS_RECURRENCE_CHUNK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/decay_factor-inl.h"
#include "kernels/panels-inl.h"
#include "kernels/recurrence/tasks.h"
#include "kernels/scores-inl.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(kRecurrentChunk == kBlock);

// dst[r] = columns [column, column + width) of the chunk's row r, zero rows
// after the last; dst [16, ld].
template <DType kType>
HWY_INLINE void CopyTokens(const ChunkView& from, int64_t width,
                           float* HWY_RESTRICT dst, int64_t ld) {
  const DF d;
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  for (int64_t r = 0; r < kRecurrentChunk; ++r) {
    for (int64_t c = 0; c < width; c += kLanes) {
      hn::StoreU(LoadVector<kType>(d, from.data + r * from.stride + c * kBytes),
                 d, dst + r * ld + c);
    }
  }
}

HWY_MAYBE_UNUSED static HWY_NOINLINE void LoadTokens(
    const TensorView& view, const ChunkSpan& s, int64_t head, int64_t column,
    int64_t width, float* dst, int64_t ld) {
  if (s.rows == kRecurrentChunk && width == ld) {
    const ChunkView from(view, s.batch, s.first, head, column);
    return WithDType(view.dtype, [&](auto type) HWY_ATTR {
      CopyTokens<decltype(type)::value>(from, width, dst, ld);
    });
  }
  const int64_t skip = column * static_cast<int64_t>(DTypeBytes(view.dtype));
  for (int64_t r = 0; r < s.rows; ++r) {
    LoadRow(view.dtype, view.Row(s.batch, s.first + r, head) + skip, width,
            dst + r * ld);
  }
  ZeroRows(dst, s.rows, kRecurrentChunk, ld);
}

// One number per token and head (gates, betas) into [16]; `pad` after the last.
HWY_INLINE void LoadScalars(const TensorView& view, const ChunkSpan& s,
                            int64_t head, float pad, float* dst) {
  for (int64_t r = 0; r < s.rows; ++r) {
    dst[r] = LoadNumber(view.dtype, view.Row(s.batch, s.first + r, head));
  }
  std::fill(dst + s.rows, dst + kRecurrentChunk, pad);
}

HWY_MAYBE_UNUSED static void StoreScalars(const float* from, const ChunkSpan& s,
                                          int64_t head,
                                          const TensorView& view) {
  HWY_ALIGN float row[kRowPad] = {0};
  for (int64_t r = 0; r < s.rows; ++r) {
    row[0] = from[r];
    StoreRow(view.dtype, row, 1, view.Row(s.batch, s.first + r, head));
  }
}

// Lanes of a block of 16 tokens.
struct BlockLanes {
  VF at[kBlockVectors];
  HWY_INLINE BlockLanes() {}  // NOLINT: not initialised
  HWY_INLINE explicit BlockLanes(float x) {
    HWY_UNROLL(16)
    for (int v = 0; v < kBlockVectors; ++v) at[v] = hn::Set(DF(), x);
  }
  HWY_INLINE explicit BlockLanes(const float* from) {
    HWY_UNROLL(16)
    for (int v = 0; v < kBlockVectors; ++v) {
      at[v] = hn::LoadU(DF(), from + v * kLanes);
    }
  }
  HWY_INLINE void Store(float* to) const {
    HWY_UNROLL(16)
    for (int v = 0; v < kBlockVectors; ++v) {
      hn::StoreU(at[v], DF(), to + v * kLanes);
    }
  }
  HWY_INLINE void Multiply(VF factor) {
    HWY_UNROLL(16)
    for (int v = 0; v < kBlockVectors; ++v) at[v] = hn::Mul(at[v], factor);
  }
  HWY_INLINE void Multiply(const BlockLanes& factor) {
    HWY_UNROLL(16)
    for (int v = 0; v < kBlockVectors; ++v) {
      at[v] = hn::Mul(at[v], factor.at[v]);
    }
  }
  HWY_INLINE void Add(const BlockLanes& a) {
    HWY_UNROLL(16)
    for (int v = 0; v < kBlockVectors; ++v) at[v] = hn::Add(at[v], a.at[v]);
  }
  HWY_INLINE void MultiplyAdd(const BlockLanes& a, const BlockLanes& b) {
    HWY_UNROLL(16)
    for (int v = 0; v < kBlockVectors; ++v) {
      at[v] = hn::MulAdd(a.at[v], b.at[v], at[v]);
    }
  }
  HWY_INLINE void MultiplyAdd(VF a, const BlockLanes& b) {
    HWY_UNROLL(16)
    for (int v = 0; v < kBlockVectors; ++v) {
      at[v] = hn::MulAdd(a, b.at[v], at[v]);
    }
  }
  // Lane `lane` becomes x.
  HWY_INLINE void Insert(int64_t lane, VF x) {
    const DF d;
    const VF index = hn::Iota(d, 0);
    HWY_UNROLL(16)
    for (int v = 0; v < kBlockVectors; ++v) {
      const VF wanted = hn::Set(d, static_cast<float>(lane - v * kLanes));
      at[v] = hn::IfThenElse(hn::Eq(index, wanted), x, at[v]);
    }
  }
};

// A gate per head or token: E_ij = gamma_{j+1} ... gamma_i as rows over i and
// over j, F_i = gamma_0 ... gamma_i, what is left of token j at the end of the
// chunk, and the state's factor. Rows and columns of E beyond the diagonal are
// zero. `gates` holds the factors; `exclusive`: the read comes before the decay
// of its own token, so that E_{i-1,j} and F_{i-1} take their places in pairs
// and from_start.
HWY_MAYBE_UNUSED static HWY_NOINLINE void ScalarDecays(const ChunkParts& at,
                                                       bool exclusive,
                                                       float* w) {
  const DF d;
  constexpr int64_t C = kRecurrentChunk;
  const float* gamma = w + at.gates;
  const VF one = hn::Set(d, 1.0f);
  BlockLanes row(0.0f), column(0.0f);
  for (int64_t i = 0; i < C; ++i) {
    if (exclusive) row.Store(w + at.pairs + i * C);
    if (i > 0) row.Multiply(hn::Set(d, gamma[i]));
    row.Insert(i, one);
    if (!exclusive) row.Store(w + at.pairs + i * C);
    // Row C - 1 - i of E^T, from the row after it.
    const int64_t j = C - 1 - i;
    if (exclusive) {
      // E_{i-1,j}: the product begins with 1 at i = j + 1.
      if (j + 2 < C) column.Multiply(hn::Set(d, gamma[j + 1]));
      if (j + 1 < C) column.Insert(j + 1, one);
    } else {
      if (j + 1 < C) column.Multiply(hn::Set(d, gamma[j + 1]));
      column.Insert(j, one);
    }
    column.Store(w + at.pairs_t + j * C);
  }
  row.Store(w + at.to_end);
  const VF first = hn::Set(d, gamma[0]);
  column.Multiply(first);  // lanes of E_i0, or of E_{i-1,0}
  if (exclusive) column.Insert(0, one);
  column.Store(w + at.from_start);
  const VF end = hn::Mul(hn::Set(d, w[at.to_end]), first);
  for (int64_t k = 0; k < at.key; k += kLanes) {
    hn::StoreU(end, d, w + at.end_decay + k);
  }
}

// Whether none of n floats, a multiple of 16, is infinite or NaN.
HWY_INLINE bool AllFinite(const float* x, int64_t n) {
  const DF d;
  BlockLanes sum(0.0f);
  for (int64_t i = 0; i < n; i += kRecurrentChunk) {
    HWY_UNROLL(16)
    for (int v = 0; v < kBlockVectors; ++v) {
      const VF part = hn::LoadU(d, x + i + v * kLanes);
      sum.at[v] = hn::Add(sum.at[v], hn::Sub(part, part));
    }
  }
  VF all = hn::Zero(d);
  HWY_UNROLL(16)
  for (int v = 0; v < kBlockVectors; ++v) all = hn::Add(all, sum.at[v]);
  return hn::AllTrue(d, hn::Eq(all, hn::Zero(d)));
}

// rows [16, ld] *= factor[r].
HWY_INLINE void ScaleRows(float* rows, int64_t ld, const float* factor) {
  for (int64_t r = 0; r < kRecurrentChunk; ++r) {
    ScaleRow(rows + r * ld, ld, factor[r]);
  }
}

// to[k] = from[k] * factor * scale, rows of 16 lanes over tokens.
HWY_INLINE void ScaleLanes(const float* from, int64_t rows, const float* factor,
                           float scale, float* to) {
  BlockLanes f(factor);
  f.Multiply(hn::Set(DF(), scale));
  for (int64_t k = 0; k < rows; ++k) {
    BlockLanes x(from + k * kRecurrentChunk);
    x.Multiply(f);
    x.Store(to + k * kRecurrentChunk);
  }
}

// scores [16, 16] *= pairs * scale, entry by entry.
HWY_INLINE void DecayScores(float* scores, const float* pairs, float scale) {
  const VF s = hn::Set(DF(), scale);
  for (int64_t r = 0; r < kRecurrentChunk; ++r) {
    BlockLanes x(scores + r * kRecurrentChunk);
    BlockLanes factor(pairs + r * kRecurrentChunk);
    factor.Multiply(s);
    x.Multiply(factor);
    x.Store(scores + r * kRecurrentChunk);
  }
}

HWY_INLINE void ZeroDiagonal(float* scores) {
  for (int64_t r = 0; r < kRecurrentChunk; ++r) {
    scores[r * kRecurrentChunk + r] = 0.0f;
  }
}

// to = decay * from + a^T b over `depth` tokens, for one panel of a state.
template <bool kGated, int kVectors>
HWY_INLINE void DecayPanel(const float* a, int64_t ld_a, const float* b,
                           int64_t ld_b, int64_t depth, int64_t rows,
                           const float* decay, const float* from, float* to,
                           RowPrefetcher& prefetch) {
  const DF d;
  ForRowTiles(rows, [&](auto m, int64_t k) HWY_ATTR {
    constexpr int kRows = decltype(m)::value;
    Tile<kRows, kVectors> tile;
    tile.Load(from + k * kPanel, kPanel);
    if (kGated) {
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        const VF factor = hn::Set(d, decay[k + r]);
        HWY_UNROLL(2)
        for (int v = 0; v < kVectors; ++v) {
          tile.at[r][v] = hn::Mul(tile.at[r][v], factor);
        }
      }
    }
    tile.AddProduct(a + k, 1, ld_a, b, ld_b, depth,
                    [&]() HWY_ATTR { prefetch.Next(); });
    tile.Store(to + k * kPanel, kPanel);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
