// dg of one chunk of a gated recurrence, from what gradient-inl.h leaves.
// A gate n has a part in each path from a key j < n, or from S, to a query
// i >= n, or to S':
//   dg_n = sum_{j < n <= i} dP_ij P_ij + sum_{i >= n} q_i F_i (S dO_i)
//          + sum_{j < n} k_j E_Cj (dS U_j) + <Gamma S, dS>
// A gate per token or head sums just these. Pairs of vector gates are summed
// channel by channel and none is kept: their first sum is telescoped, as that
// of q_i dq_i - k_i dk_i over i >= n, which has the same value. What passes no
// gate at all would cancel in it at its full size, and with strong gates leave
// nothing else; those pairs (a query and its own token's key, or the one before
// under an exclusive read) are left out of dq and dk until dg is there.

#if defined(TARN_KERNELS_RECURRENCE_GATE_GRADIENT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RECURRENCE_GATE_GRADIENT_INL_H_
#undef TARN_KERNELS_RECURRENCE_GATE_GRADIENT_INL_H_
#else
#define TARN_KERNELS_RECURRENCE_GATE_GRADIENT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/recurrence/gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

// The sum over columns of `state` dS, for every row, into state_rows [key].
HWY_MAYBE_UNUSED static void StateRowDots(const GradientContext& c,
                                          const float* state) {
  const DF d;
  for (int64_t k = 0; k < c.at.key; ++k) {
    VF sum = hn::Zero(d);
    ForPanels(c.at.value, [&](auto n, int64_t v) HWY_ATTR {
      constexpr int kVectors = decltype(n)::value;
      const int64_t row = v * c.at.key + k * kPanel;
      HWY_UNROLL(2)
      for (int i = 0; i < kVectors; ++i) {
        const int64_t at = row + i * kLanes;
        sum = hn::MulAdd(hn::LoadU(d, state + at),
                         hn::LoadU(d, c.grad_state + at), sum);
      }
    });
    c.w[c.layout.state_rows + k] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

// sum_{j < n <= i} of pair_parts for every n, or over j < n < i where a read
// has not seen the decay of its token.
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

// Weights of queries and keys (by rows over queries, and transposed) of which a
// query reads the key `shift` tokens before it through no gate.
struct NearPairs {
  float *weights, *weights_t;   // [C, C]
  int64_t shift;                // 0, or 1 where a read has not seen its decay
  float* lanes;                 // [C], by queries: what is taken
  const float *queries, *keys;  // [C, key]
  float *grad_queries, *grad_keys;
};

// Takes the weights of near pairs out of the chunk's, until AddNear.
HWY_MAYBE_UNUSED static void TakeNear(const NearPairs& pairs) {
  constexpr int64_t C = kRecurrentChunk;
  pairs.lanes[0] = 0.0f;
  for (int64_t i = pairs.shift, j = 0; i < C; ++i, ++j) {
    float* weight = pairs.weights + i * C + j;
    pairs.lanes[i] = *weight;
    *weight = pairs.weights_t[j * C + i] = 0.0f;
  }
}

// Adds the terms that near pairs have in the gradients of queries and keys.
HWY_MAYBE_UNUSED static void AddNear(const NearPairs& pairs, int64_t key) {
  const DF d;
  for (int64_t i = pairs.shift, j = 0; i < kRecurrentChunk; ++i, ++j) {
    const VF weight = hn::Set(d, pairs.lanes[i]);
    const float *q = pairs.queries + i * key, *k = pairs.keys + j * key;
    float *dq = pairs.grad_queries + i * key, *dk = pairs.grad_keys + j * key;
    for (int64_t n = 0; n < key; n += kLanes) {
      hn::StoreU(hn::MulAdd(weight, hn::LoadU(d, k + n), hn::LoadU(d, dq + n)),
                 d, dq + n);
      hn::StoreU(hn::MulAdd(weight, hn::LoadU(d, q + n), hn::LoadU(d, dk + n)),
                 d, dk + n);
    }
  }
}

// The near pairs of vector gates without a low-rank pair.
HWY_INLINE NearPairs NearPairsOf(const GradientContext& c) {
  const RecurrentGradientLayout& l = c.layout;
  float* w = c.w;
  return {w + l.weights,      w + l.weights_t,  c.in().bonus != nullptr ? 1 : 0,
          w + l.near_lanes,   w + c.at.queries, w + c.at.keys,
          w + l.queries_grad, w + l.keys_grad};
}

// dg of vector gates by rows [C, key] into gate_rows. change(i, k) is what row
// i adds to the telescoped sum: the terms of what reads at i less those of what
// is written at i, in the kLanes channels from k. at.spare holds what each
// token writes to S' times what S' gives its gradient: change() has it taken
// out of the telescoped sum, which a last key, that passes no gate on its way
// to S', gets exactly 0 of.
template <typename Change>
HWY_INLINE void TelescopeGates(const GradientContext& c, const Change& change) {
  const DF d;
  constexpr int64_t C = kRecurrentChunk;
  const RecurrentGradientLayout& l = c.layout;
  float* w = c.w;
  const int64_t key = c.at.key;
  const bool to_end = c.has_grad_state;
  const bool through = to_end && c.s.reads_state;  // from S to S'
  if (through) StateRowDots(c, c.state);
  for (int64_t k = 0; k < key; k += kLanes) {
    VF before = hn::Zero(d);
    if (through) {
      before = hn::Mul(hn::LoadU(d, w + c.at.end_decay + k),
                       hn::LoadU(d, w + l.state_rows + k));
    }
    for (int64_t j = 0; to_end && j < C; ++j) {
      hn::StoreU(before, d, w + l.gate_rows + j * key + k);
      before = hn::Add(before, hn::LoadU(d, w + c.at.spare + j * key + k));
    }
    VF sum = hn::Zero(d);
    for (int64_t i = C - 1; i >= 0; --i) {
      const int64_t row = i * key + k;
      sum = hn::Add(sum, change(i, k));
      const VF all =
          to_end ? hn::Add(sum, hn::LoadU(d, w + l.gate_rows + row)) : sum;
      const auto reset =
          hn::Eq(hn::LoadU(d, w + c.at.gates + row), hn::Zero(d));
      hn::StoreU(hn::IfThenZeroElse(reset, all), d, w + l.gate_rows + row);
    }
  }
}

HWY_MAYBE_UNUSED static void StoreGateRows(const GradientContext& c) {
  const TensorView& to = c.task.grad->grad_gates;
  for (int64_t r = 0; r < c.s.rows; ++r) {
    StoreRow(to.dtype, c.w + c.layout.gate_rows + r * c.at.key,
             c.in().keys.size[3],
             to.Row(c.s.batch, c.s.first + r, c.value_head));
  }
}

// dg of vector gates without a low-rank pair.
HWY_MAYBE_UNUSED static void VectorGateGradients(const GradientContext& c) {
  const DF d;
  const RecurrentGradientLayout& l = c.layout;
  float* w = c.w;
  const bool delta = c.in().HasBetas(), to_end = c.has_grad_state;
  const int64_t shift = c.in().bonus != nullptr ? 1 : 0;
  const int64_t key = c.at.key;
  TelescopeGates(c, [&](int64_t i, int64_t k) HWY_ATTR {
    const int64_t row = i * key + k, read = row + shift * key;
    const VF own = hn::LoadU(d, w + c.at.keys + row);
    VF change = hn::Mul(own, hn::LoadU(d, w + l.keys_grad + row));
    change = to_end ? hn::Sub(hn::LoadU(d, w + c.at.spare + row), change)
                    : hn::Neg(change);
    if (i + shift < kRecurrentChunk) {
      change = hn::MulAdd(hn::LoadU(d, w + c.at.queries + read),
                          hn::LoadU(d, w + l.queries_grad + read), change);
    }
    if (delta) {
      change = hn::MulAdd(own, hn::LoadU(d, w + l.past_grad + row), change);
    }
    return change;
  });
  StoreGateRows(c);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
