// The gradient of one chunk of a gated recurrence, S before it, S' after it and
// dS = dL/dS' known (families of one core; U = V without the delta rule):
//   dU = P^T dO + Kb dS              dP = tril(dO U^T)
//   dq_i = F_i (S dO_i) + sum_{j <= i} dP_ij E_ij k_j
//   dk_j = E_Cj (dS U_j) + sum_{i >= j} dP_ij E_ij q_i
//   dS <- Gamma dS + Qt^T dO
// A gate n has a part in each path from a key j < n, or from S, to a query
// i >= n, or to S' (the telescoped sum of q_i dq_i - k_i dk_i is the same, but
// what does not pass the gate cancels there, which costs strong gates their
// digits):
//   dg_n = sum_{j < n <= i} dP_ij P_ij + sum_{i >= n} q_i F_i (S dO_i)
//          + sum_{j < n} k_j E_Cj (dS U_j) + <Gamma S, dS>
// Delta rule: (I + X^T Diag(beta)) w = dU, dV = beta w, dY = -beta w,
// dbeta_i = w_i . R_i, and k stands as a second query p with the gradient dY,
// whose scores X are strict: dP, dq, dS and dg gain its terms, dk gains dp.
// Products with states have the tokens in their lanes, so that no state is
// transposed.

#if defined(TARN_KERNELS_DECAY_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_DECAY_GRADIENT_INL_H_
#undef TARN_KERNELS_DECAY_GRADIENT_INL_H_
#else
#define TARN_KERNELS_DECAY_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/decay/rebuild-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What the functions of one chunk and value head know.
struct GradientContext {
  const RecurrentGradientTask& task;
  const RecurrentGradientLayout& layout;
  const ChunkParts& at;
  ChunkSpan s;          // reads_state: S is not zero; leaves_state: dS goes on
  bool has_grad_state;  // dS is not zero
  int64_t g, value_head;
  // Whether all queries and keys of the chunk are: products of hidden pairs are
  // weights of 0, which do not remove a NaN.
  bool finite;
  const float *state, *next_state;  // S, S'
  float* grad_state;                // dS
  float* w;
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
  // With both: parts [16 lanes] = sum over rows of the state's term times with.
  const float* with = nullptr;
  float* parts = nullptr;
  bool finite = true;  // a and more; if not, weights of 0 are skipped
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

// From w in grad_values: dbeta, dV = beta w in its place, dY = -dV.
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

// The sum over all entries of S dS, panel by panel.
HWY_MAYBE_UNUSED static float StatesDot(const GradientContext& c) {
  const DF d;
  VF sum[2] = {hn::Zero(d), hn::Zero(d)};
  ForPanels(c.at.value, [&](auto n, int64_t v) HWY_ATTR {
    constexpr int kVectors = decltype(n)::value;
    const float* a = c.state + v * c.at.key;
    const float* b = c.grad_state + v * c.at.key;
    for (int64_t k = 0; k < c.at.key; ++k) {
      HWY_UNROLL(2)
      for (int i = 0; i < kVectors; ++i) {
        const int64_t at = k * kPanel + i * kLanes;
        sum[i] = hn::MulAdd(hn::LoadU(d, a + at), hn::LoadU(d, b + at), sum[i]);
      }
    }
  });
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[0], sum[1])));
}

// rowsum(S' dS) of every row of the states into state_rows [key].
HWY_MAYBE_UNUSED static void StateRowDots(const GradientContext& c) {
  const DF d;
  for (int64_t k = 0; k < c.at.key; ++k) {
    VF sum = hn::Zero(d);
    ForPanels(c.at.value, [&](auto n, int64_t v) HWY_ATTR {
      constexpr int kVectors = decltype(n)::value;
      const int64_t row = v * c.at.key + k * kPanel;
      HWY_UNROLL(2)
      for (int i = 0; i < kVectors; ++i) {
        const int64_t at = row + i * kLanes;
        sum = hn::MulAdd(hn::LoadU(d, c.next_state + at),
                         hn::LoadU(d, c.grad_state + at), sum);
      }
    });
    c.w[c.layout.state_rows + k] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

// sum_{j < n <= i} of pair_parts for every n, or over j < n < i where a read
// has not seen the decay of its own token.
HWY_INLINE BlockLanes PairsAcross(const GradientContext& c, bool exclusive) {
  constexpr int64_t C = kRecurrentChunk;
  HWY_ALIGN float rows[C * C];
  HWY_ALIGN float columns[C * C];
  BlockLanes before(0.0f);  // sum over keys j < n, by queries
  for (int64_t n = 0; n < C; ++n) {
    before.Store(rows + n * C);
    before.Add(BlockLanes(c.w + c.layout.pair_parts + n * C));
  }
  Transpose(rows, C, C, C, columns, C);
  BlockLanes sum(0.0f);
  for (int64_t i = 0; i < C; ++i) {
    const int64_t end = exclusive ? i : i + 1;
    BlockLanes row(columns + i * C);
    HWY_UNROLL(16)
    for (int v = 0; end < C && v < kBlockVectors; ++v) {
      row.at[v] = hn::And(LaneMask(kLaneMasks.before, end, v), row.at[v]);
    }
    sum.Add(row);
  }
  return sum;
}

// dg of a gate per token or head.
HWY_MAYBE_UNUSED static void ScalarGateGradients(const GradientContext& c) {
  constexpr int64_t C = kRecurrentChunk;
  const RecurrentGradientLayout& l = c.layout;
  float* w = c.w;
  const bool exclusive = c.in().bonus != nullptr;
  HWY_ALIGN float across[C];
  HWY_ALIGN float queries[C + 1];
  PairsAcross(c, exclusive).Store(across);
  BlockLanes from_queries(w + l.query_parts);
  if (c.in().HasBetas()) from_queries.Add(BlockLanes(w + l.past_parts));
  from_queries.Store(queries);
  queries[C] = 0.0f;
  const int64_t shift = exclusive ? 1 : 0;
  float following = 0.0f;
  float* to = w + l.gate_rows;
  for (int64_t n = C - 1; n >= 0; --n) {
    following += queries[n + shift];
    to[n] = across[n] + following;
  }
  float before = c.has_grad_state && c.s.reads_state
                     ? w[c.at.end_decay] * StatesDot(c)
                     : 0.0f;
  double total = 0;
  for (int64_t n = 0; n < C; ++n) {
    to[n] = w[c.at.gates + n] == 0.0f ? 0.0f : to[n] + before;
    before += w[l.key_parts + n];
    if (n < c.s.rows) total += static_cast<double>(to[n]);
  }
  if (c.task.head_gate_sums != nullptr) c.task.head_gate_sums[c.g] += total;
  if (c.in().HasGates()) {
    StoreScalars(to, c.s, c.value_head, c.task.grad->grad_gates);
  }
}

// dg of vector gates from rows, by the telescoped sum: pairs are not kept for
// each channel, so a gate far below 1 has the rounding of what cancels.
HWY_MAYBE_UNUSED static void VectorGateGradients(const GradientContext& c) {
  const DF d;
  constexpr int64_t C = kRecurrentChunk;
  const RecurrentGradientLayout& l = c.layout;
  float* w = c.w;
  const bool delta = c.in().HasBetas();
  const int64_t shift = c.in().bonus != nullptr ? 1 : 0;
  const int64_t key = c.at.key;
  if (c.has_grad_state) StateRowDots(c);
  for (int64_t k = 0; k < key; k += kLanes) {
    VF sum =
        c.has_grad_state ? hn::LoadU(d, w + l.state_rows + k) : hn::Zero(d);
    for (int64_t i = C - 1; i >= 0; --i) {
      const int64_t row = i * key + k, read = row + shift * key;
      const VF own = hn::LoadU(d, w + c.at.keys + row);
      VF change = hn::Mul(own, hn::LoadU(d, w + l.keys_grad + row));
      change = hn::Neg(change);
      if (i + shift < C) {
        change = hn::MulAdd(hn::LoadU(d, w + c.at.queries + read),
                            hn::LoadU(d, w + l.queries_grad + read), change);
      }
      if (delta) {
        change = hn::MulAdd(own, hn::LoadU(d, w + l.past_grad + row), change);
      }
      sum = hn::Add(sum, change);
      const auto reset =
          hn::Eq(hn::LoadU(d, w + c.at.gates + row), hn::Zero(d));
      hn::StoreU(hn::IfThenZeroElse(reset, sum), d, w + l.gate_rows + row);
    }
  }
  const TensorView& to = c.task.grad->grad_gates;
  for (int64_t r = 0; r < c.s.rows; ++r) {
    StoreRow(to.dtype, w + l.gate_rows + r * key, c.in().keys.size[3],
             to.Row(c.s.batch, c.s.first + r, c.value_head));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
