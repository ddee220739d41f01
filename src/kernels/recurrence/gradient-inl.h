// The gradient of one chunk of a gated recurrence, S before it, S' after it and
// dS = dL/dS' known (families of one core; U = V without the delta rule):
//   dU = P^T dO + Kb dS              dP = tril(dO U^T)
//   dq_i = F_i (S dO_i) + sum_{j <= i} dP_ij E_ij k_j
//   dk_j = E_Cj (dS U_j) + sum_{i >= j} dP_ij E_ij q_i
//   dS <- Gamma dS + Qt^T dO
// Delta rule: (I + X^T Diag(beta)) w = dU, dV = beta w, dY = -beta w,
// dbeta_i = w_i . R_i, and k acts as a second query p with the gradient dY,
// whose scores X are strict: dP, dq, dS and dg gain its terms, dk gains dp. dg:
// gate_gradient-inl.h. Products with states have the tokens in their lanes, so
// that no state is transposed.

#if defined(TARN_KERNELS_RECURRENCE_GRADIENT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RECURRENCE_GRADIENT_INL_H_
#undef TARN_KERNELS_RECURRENCE_GRADIENT_INL_H_
#else
#define TARN_KERNELS_RECURRENCE_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/recurrence/rebuild-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What the functions of one chunk and value head know.
struct GradientContext {
  const RecurrentGradientTask& task;
  const RecurrentGradientLayout& layout;
  const ChunkParts& at;
  ChunkSpan s;          // reads_state: S is not zero; leaves_state: dS is used
  bool has_grad_state;  // dS is not zero
  int64_t g, value_head;
  // Whether all queries and keys of the chunk are: products of hidden pairs are
  // weights of 0, which do not remove a NaN.
  bool finite;
  const float *state, *next_state;  // S, S'
  float* grad_state;                // dS
  float* w;
  RowPrefetcher& prefetch;  // of what the next value head or chunk loads
  const RecurrentInputs& in() const { return *task.in; }
};

// [key, 16 lanes] = (state B^T) * factor * scale + a^T weights (+ more^T
// more_weights): B^T [d_value, 16], factor rows `factor_stride` apart, a and
// more rows [16, key]. A null state or weight leaves its term out.
struct StateProduct {
  const float* state;
  const float* b_t;
  const float* factor;
  int64_t factor_stride;
  float scale;
  const float *a, *weights;
  const float *more, *more_weights;
  float* to;
  // If neither is null: parts [16 lanes] = sum over rows of the state's term
  // times `with`.
  const float* with = nullptr;
  float* parts = nullptr;
  bool finite = true;  // a and more; if not, weights of 0 are skipped
  RowPrefetcher* prefetch = nullptr;  // one pause in kScoreRows rows
};

// tile += a^T weights over 16 tokens, as Tile::AddProduct, without what has a
// weight of 0.
HWY_MAYBE_UNUSED static HWY_NOINLINE void AddSkippingZeros(
    const float* a, int64_t ld, const float* weights,
    Tile<kScoreRows, kBlockVectors>& tile) {
  const DF d;
  constexpr int64_t C = kRecurrentChunk;
  for (int64_t j = 0; j < C; ++j) {
    for (int r = 0; r < kScoreRows; ++r) {
      const VF x = hn::Set(d, a[j * ld + r]);
      for (int v = 0; v < kBlockVectors; ++v) {
        const VF weight = hn::LoadU(d, weights + j * C + v * kLanes);
        tile.at[r][v] =
            hn::IfThenElse(hn::Eq(weight, hn::Zero(d)), tile.at[r][v],
                           hn::MulAdd(x, weight, tile.at[r][v]));
      }
    }
  }
}
HWY_MAYBE_UNUSED static HWY_NOINLINE void StateTimesTokens(
    const ChunkParts& at, int64_t d_value, const StateProduct& p) {
  const DF d;
  constexpr int64_t C = kRecurrentChunk;
  const VF scale = hn::Set(d, p.scale);
  BlockLanes parts(0.0f);
  for (int64_t k = 0; k < at.key; k += kScoreRows) {
    if (p.prefetch != nullptr) p.prefetch->Next();
    Tile<kScoreRows, kBlockVectors> tile;
    tile.Clear();
    if (p.state != nullptr) {
      for (int64_t v = 0; v < d_value; v += kPanel) {
        tile.AddProduct(p.state + v * at.key + k * kPanel, kPanel, 1,
                        p.b_t + v * C, C, std::min(kPanel, d_value - v));
      }
      HWY_UNROLL(16)
      for (int r = 0; r < kScoreRows; ++r) {
        HWY_UNROLL(16)
        for (int v = 0; v < kBlockVectors; ++v) {
          const float* factor =
              p.factor + (k + r) * p.factor_stride + v * kLanes;
          tile.at[r][v] =
              hn::Mul(tile.at[r][v], hn::Mul(hn::LoadU(d, factor), scale));
        }
      }
      for (int r = 0; p.parts != nullptr && r < kScoreRows; ++r) {
        HWY_UNROLL(16)
        for (int v = 0; v < kBlockVectors; ++v) {
          const float* with = p.with + (k + r) * C + v * kLanes;
          parts.at[v] =
              hn::MulAdd(tile.at[r][v], hn::LoadU(d, with), parts.at[v]);
        }
      }
    }
    const auto add = [&](const float* a, const float* weights) HWY_ATTR {
      if (weights == nullptr) return;
      if (HWY_LIKELY(p.finite)) {
        return tile.AddProduct(a + k, 1, at.key, weights, C, C);
      }
      AddSkippingZeros(a + k, at.key, weights, tile);
    };
    add(p.a, p.weights);
    add(p.more, p.more_weights);
    tile.Store(p.to + k * C, C);
  }
  if (p.parts != nullptr) parts.Store(p.parts);
}

// Columns of one panel of dU = P^T dO + Kb dS into grad_values, or of w.
template <bool kDelta, int kVectors>
HWY_INLINE void ValueGradientPanel(const GradientContext& c, const ScoreView& p,
                                   int64_t v) {
  constexpr int64_t C = kRecurrentChunk;
  const ChunkParts& at = c.at;
  float* w = c.w;
  const float* grad_out = w + c.layout.grad_out + v;
  float* to = w + c.layout.grad_values + v;
  ForRowTilesDown([&](auto m, int64_t j) HWY_ATTR {
    constexpr int kRows = decltype(m)::value;
    Tile<kRows, kVectors> tile;
    tile.Clear();
    if (c.has_grad_state) {
      tile.AddProduct(w + c.layout.decayed_keys_t + j, 1, C,
                      c.grad_state + v * at.key, kPanel, c.in().keys.size[3]);
    }
    const float* scores = p.at + j * p.key;
    const int64_t next = j + kRows;
    tile.AddUpper(scores + j * p.query, p.key, p.query, grad_out + j * at.value,
                  at.value);
    tile.AddProduct(scores + next * p.query, p.key, p.query,
                    grad_out + next * at.value, at.value, C - next);
    if (kDelta) {
      const float* solve = w + at.solve + j * C;
      tile.AddProduct(solve + next, C, 1, to + next * at.value, at.value,
                      C - next);
      SolveUpper<kRows - 1>(solve + j, C, 1, tile);
    }
    tile.Store(to + j * at.value, at.value);
  });
}

// Computes dbeta, dV = beta w and dY = -dV from w, which grad_values holds and
// dV replaces.
HWY_MAYBE_UNUSED static void DeltaValueGradients(const GradientContext& c,
                                                 const float* residuals) {
  const DF d;
  const ChunkParts& at = c.at;
  float* w = c.w;
  HWY_ALIGN float grad_betas[kRecurrentChunk];
  for (int64_t i = 0; i < kRecurrentChunk; ++i) {
    float* row = w + c.layout.grad_values + i * at.value;
    float* past = w + c.layout.grad_past + i * at.value;
    grad_betas[i] = RowDot(row, residuals + i * at.value, at.value);
    const VF beta = hn::Set(d, w[at.betas + i]);
    for (int64_t v = 0; v < at.value; v += kLanes) {
      const VF x = hn::Mul(hn::LoadU(d, row + v), beta);
      hn::StoreU(x, d, row + v);
      hn::StoreU(hn::Neg(x), d, past + v);
    }
  }
  StoreScalars(grad_betas, c.s, c.value_head, c.task.grad->grad_betas);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
