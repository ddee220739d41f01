// Gradient of dplr_attention: the reverse pass of decay_attention, with the
// reads as second queries, the writes as second keys and what was read, Z, as
// their values:
//   (I - Acb)^T dZ = Pb^T dO + Bb dS;  dV = P^T dO + Kb dS + Ack^T dZ
//   dq, dc from the output gradients [dO; dZ]; dk, db from the values [V; Z]
//   h_i = q_i dq_i + c_{i+1} dc_{i+1} - k_i dk_i - b_i db_i
//   dS <- Gamma dS + Qt^T dO + Ct^T dZ
#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/dplr/dplr_attention.h"
#include "kernels/recurrence/checks.h"
#include "kernels/recurrence/gradient_dispatch.h"
#include "kernels/recurrence/gradient_layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dplr/dplr_attention_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/dplr/pair-inl.h"
#include "kernels/recurrence/chunked_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// tile += the rows i >= j of scores^T b, for a tile of rows j: scores by rows
// over i.
template <int kRows, int kVectors>
static HWY_INLINE void AddFollowing(const float* scores, const float* b,
                                    int64_t ld, int64_t j,
                                    Tile<kRows, kVectors>& tile) {
  constexpr int64_t C = kRecurrentChunk;
  const int64_t next = j + kRows;
  tile.AddUpper(scores + j * C + j, 1, C, b + j * ld, ld);
  tile.AddProduct(scores + next * C + j, 1, C, b + next * ld, ld, C - next);
}

// Columns of one panel of dZ into grad_past and of dV into grad_values.
template <int kVectors>
static HWY_INLINE void PairValuePanel(const GradientContext& c, int64_t v) {
  constexpr int64_t C = kRecurrentChunk;
  const ChunkParts& at = c.at;
  const RecurrentGradientLayout& l = c.layout;
  const int64_t d_key = c.in().keys.size[3];
  float* w = c.w;
  const float* panel = c.grad_state + v * at.key;
  const float* grad_out = w + l.grad_out + v;
  float* grad_read = w + l.grad_past + v;
  ForRowTilesDown([&](auto m, int64_t j) HWY_ATTR {
    constexpr int kRows = decltype(m)::value;
    Tile<kRows, kVectors> tile;
    tile.Clear();
    if (c.has_grad_state) {
      tile.AddProduct(w + l.decayed_writes_t + j, 1, C, panel, kPanel, d_key);
    }
    AddFollowing(w + at.write_scores, grad_out, at.value, j, tile);
    const float* solve = w + at.solve + j;  // Acb by rows over reads
    const int64_t next = j + kRows;
    tile.AddProduct(solve + next * C, 1, C, grad_read + next * at.value,
                    at.value, C - next);
    SolveUpper<kRows - 1>(solve + j * C, 1, C, tile);
    tile.Store(grad_read + j * at.value, at.value);
  });
  ForRowTilesDown([&](auto m, int64_t j) HWY_ATTR {
    Tile<decltype(m)::value, kVectors> tile;
    tile.Clear();
    if (c.has_grad_state) {
      tile.AddProduct(w + l.decayed_keys_t + j, 1, C, panel, kPanel, d_key);
    }
    AddFollowing(w + at.scores, grad_out, at.value, j, tile);
    AddFollowing(w + at.past_scores, grad_read, at.value, j, tile);
    tile.Store(w + l.grad_values + j * at.value + v, at.value);
  });
}

// dP of gradients `rows` with values `values_t`, by rows over queries and over
// keys.
static void PairWeights(const GradientContext& c, int64_t rows,
                        int64_t values_t, float scale, bool strict,
                        int64_t weights, int64_t weights_t) {
  constexpr int64_t C = kRecurrentChunk;
  float* w = c.w;
  Scores<Half::kLaneNotAfter>({w + rows, c.at.value, w + values_t, C, C, C,
                               c.in().values.size[3], nullptr, nullptr,
                               w + weights});
  if (strict) ZeroDiagonal(w + weights);
  if (scale != 1.0f) ScaleRow(w + weights, C * C, scale);
  Transpose(w + weights, C, C, C, w + weights_t, C);
}

// dq, dk, dc and db, transposed and then by rows.
static void PairRowGradients(const GradientContext& c) {
  constexpr int64_t C = kRecurrentChunk;
  const RecurrentGradientLayout& l = c.layout;
  const ChunkParts& at = c.at;
  const int64_t d_key = c.in().keys.size[3], d_value = c.in().values.size[3];
  const float* state = c.s.reads_state ? c.state : nullptr;
  const float* grad_state = c.has_grad_state ? c.grad_state : nullptr;
  float* w = c.w;
  const float* gamma = w + at.gates;
  const auto product = [&](const float* of, int64_t b_t, int64_t factor,
                           float scale, int64_t to) HWY_ATTR {
    StateTimesTokens(
        at, d_value,
        {of, w + b_t, w + factor, C, scale, nullptr, nullptr, nullptr, nullptr,
         w + to, nullptr, nullptr, true, &c.prefetch});
  };
  product(state, l.grad_out_t, l.from_start_t, c.task.options->scale,
          l.queries_t_grad);
  product(state, l.grad_past_t, l.past_start_t, 1.0f, l.past_t_grad);
  product(grad_state, l.values_t, l.to_end_t, 1.0f, l.keys_t_grad);
  product(grad_state, l.values_read_t, l.to_end_t, 1.0f, l.writes_t_grad);
  if (c.has_grad_state && IsGated(c.in())) {  // for dg
    Transpose(w + l.keys_t_grad, C, at.key, C, w + l.keys_grad, at.key);
    Transpose(w + l.writes_t_grad, C, at.key, C, w + l.writes_grad, at.key);
    MultiplyRows(w + at.keys, w + l.keys_grad, 1.0f, at.key, w + at.spare);
    MultiplyRows(w + at.writes, w + l.writes_grad, 1.0f, at.key,
                 w + l.writes_grad);
    AddRow(w + l.writes_grad, C * at.key, w + at.spare);
  }
  const auto keys = [&](int64_t weights_t, int64_t rows, bool past,
                        int64_t to) HWY_ATTR {
    AddDecayedKeys(w + weights_t, w + rows, gamma, at.key, d_key, past, w + to);
  };
  keys(l.weights_t, at.keys, false, l.queries_t_grad);
  keys(l.write_weights_t, at.writes, false, l.queries_t_grad);
  keys(l.past_weights_t, at.keys, true, l.past_t_grad);
  keys(l.pair_weights_t, at.writes, true, l.past_t_grad);
  AddDecayedQueries(w + l.weights, w + at.queries, false, w + l.past_weights,
                    w + at.reads, true, gamma, at.key, d_key,
                    w + l.keys_t_grad);
  AddDecayedQueries(w + l.write_weights, w + at.queries, false,
                    w + l.pair_weights, w + at.reads, true, gamma, at.key,
                    d_key, w + l.writes_t_grad);
  const auto rows = [&](int64_t from, int64_t to) HWY_ATTR {
    Transpose(w + from, C, at.key, C, w + to, at.key);
  };
  rows(l.queries_t_grad, l.queries_grad);
  rows(l.keys_t_grad, l.keys_grad);
  rows(l.past_t_grad, l.past_grad);
  rows(l.writes_t_grad, l.writes_grad);
}

// Pairs that pass no gate: a query and what its own token writes, a read and
// what the token before it writes.
static std::array<NearPairs, 4> NearOfPair(const GradientContext& c) {
  const RecurrentGradientLayout& l = c.layout;
  const ChunkParts& at = c.at;
  float* w = c.w;
  const auto near = [&](int64_t number, int64_t weights, int64_t weights_t,
                        bool read, bool write) -> NearPairs {
    return {w + weights,
            w + weights_t,
            read ? 1 : 0,
            w + l.near_lanes + number * kRecurrentChunk,
            w + (read ? at.reads : at.queries),
            w + (write ? at.writes : at.keys),
            w + (read ? l.past_grad : l.queries_grad),
            w + (write ? l.writes_grad : l.keys_grad)};
  };
  return {near(0, l.weights, l.weights_t, false, false),
          near(1, l.write_weights, l.write_weights_t, false, true),
          near(2, l.past_weights, l.past_weights_t, true, false),
          near(3, l.pair_weights, l.pair_weights_t, true, true)};
}

// dg by rows; a gate per token or head gets the sum over channels.
static void PairGateGradients(const GradientContext& c) {
  const DF d;
  constexpr int64_t C = kRecurrentChunk;
  const RecurrentGradientLayout& l = c.layout;
  const ChunkParts& at = c.at;
  const RecurrentInputs& in = c.in();
  const int64_t key = at.key;
  float* w = c.w;
  TelescopeGates(c, [&](int64_t i, int64_t k) HWY_ATTR {
    const int64_t row = i * key + k;
    const auto times = [&](int64_t a, int64_t b, int64_t of) HWY_ATTR {
      return hn::Mul(hn::LoadU(d, w + a + of), hn::LoadU(d, w + b + of));
    };
    VF written = hn::Add(times(at.keys, l.keys_grad, row),
                         times(at.writes, l.writes_grad, row));
    if (c.has_grad_state) {
      written = hn::Sub(written, hn::LoadU(d, w + at.spare + row));
    }
    VF change = hn::Sub(times(at.queries, l.queries_grad, row), written);
    if (i + 1 < C) {
      change = hn::Add(change, times(at.reads, l.past_grad, row + key));
    }
    return change;
  });
  if (in.VectorGates()) return StoreGateRows(c);
  HWY_ALIGN float sums[C];
  double total = 0;
  for (int64_t i = 0; i < C; ++i) {
    VF sum = hn::Zero(d);
    for (int64_t k = 0; k < key; k += kLanes) {
      sum = hn::Add(sum, hn::LoadU(d, w + l.gate_rows + i * key + k));
    }
    sums[i] = hn::GetLane(hn::SumOfLanes(d, sum));
    if (i < c.s.rows) total += static_cast<double>(sums[i]);
  }
  if (c.task.head_gate_sums != nullptr) c.task.head_gate_sums[c.g] += total;
  if (in.HasGates()) {
    StoreScalars(sums, c.s, c.value_head, c.task.grad->grad_gates);
  }
}

// ChunkedGradient's functions for the low-rank pair: one value head a head.
struct PairCore {
  static constexpr bool kSolves = true;

  static void Rebuild(const RecurrentGradientTask& task,
                      const RecurrentGradientLayout& layout, const ChunkSpan& s,
                      int64_t, const float* from, float* to, float* residuals,
                      float*, RowPrefetcher& prefetch) {
    const RecurrentInputs& in = *task.in;
    const ChunkParts& at = layout.chunk;
    float* w = task.scratch;
    LoadPair(in, s, task.head, at, w);
    LoadTokens(in.values, s, task.head, 0, in.values.size[3], w + at.values,
               at.value);
    PastScores(in, at, w);
    DecayPair(at, w);
    ForPanels(at.value, [&](auto n, int64_t v) HWY_ATTR {
      constexpr int kVectors = decltype(n)::value;
      SolveReads<kVectors>(at, in.keys.size[3], s.reads_state,
                           from + v * at.key, v, w);
      if (s.leaves_state) {
        UpdatePair<kVectors>(at, s, v, from + v * at.key, to + v * at.key, w,
                             prefetch);
      }
    });
    if (residuals != nullptr) {
      std::copy_n(w + at.residuals, kRecurrentChunk * at.value, residuals);
    }
  }

  static void ZeroRest(const RecurrentGradientTask& task,
                       const TokenSpan& span) {
    const int64_t d_key = task.in->keys.size[3];
    ZeroPadding(task.grad->grad_reads, span, task.head, 0, d_key);
    ZeroPadding(task.grad->grad_writes, span, task.head, 0, d_key);
  }

  static void LoadShared(const RecurrentGradientTask&,
                         const RecurrentGradientLayout&, const ChunkSpan&) {}

  static void ValueHead(const GradientContext& c, const float* residuals,
                        const float*) {
    constexpr int64_t C = kRecurrentChunk;
    const RecurrentInputs& in = c.in();
    const RecurrentGradientLayout& l = c.layout;
    const RecurrentGradients& grad = *c.task.grad;
    const ChunkParts& at = c.at;
    const int64_t d_value = in.values.size[3];
    const float scale = c.task.options->scale;
    float* w = c.w;
    LoadPair(in, c.s, c.task.head, at, w);
    LoadTokens(in.values, c.s, c.value_head, 0, d_value, w + at.values,
               at.value);
    LoadTokens(grad.grad_out, c.s, c.value_head, 0, d_value, w + l.grad_out,
               at.value);
    PairScores(*c.task.options, in, at, w);
    MultiplyRows(w + at.queries, w + at.from_start, scale, at.key,
                 w + l.decayed_queries);
    const auto decayed_t = [&](int64_t rows, int64_t to) HWY_ATTR {
      MultiplyRows(w + rows, w + at.to_end, 1.0f, at.key, w + at.spare);
      Transpose(w + at.spare, at.key, C, at.key, w + to, C);
    };
    decayed_t(at.keys, l.decayed_keys_t);
    decayed_t(at.writes, l.decayed_writes_t);
    Transpose(w + at.from_start, at.key, C, at.key, w + l.from_start_t, C);
    Transpose(w + at.to_end, at.key, C, at.key, w + l.to_end_t, C);
    MultiplyByPast(at, w + at.reads, w + at.from_start, w + l.past_keys);
    // F_{i-1} itself, by rows and then transposed.
    std::fill_n(w + at.spare, at.key, 1.0f);
    std::copy_n(w + at.from_start, (C - 1) * at.key, w + at.spare + at.key);
    Transpose(w + at.spare, at.key, C, at.key, w + l.past_start_t, C);
    ForPanels(at.value, [&](auto n, int64_t v) HWY_ATTR {
      PairValuePanel<decltype(n)::value>(c, v);
    });
    for (int64_t r = 0; r < c.s.rows; ++r) {
      StoreRow(grad.grad_values.dtype, w + l.grad_values + r * at.value,
               d_value,
               grad.grad_values.Row(c.s.batch, c.s.first + r, c.value_head));
    }
    const auto transpose = [&](const float* rows, int64_t to) HWY_ATTR {
      Transpose(rows, at.value, C, at.value, w + to, C);
    };
    transpose(w + at.values, l.values_t);
    transpose(residuals, l.values_read_t);
    transpose(w + l.grad_out, l.grad_out_t);
    transpose(w + l.grad_past, l.grad_past_t);
    PairWeights(c, l.grad_out, l.values_t, scale, false, l.weights,
                l.weights_t);
    PairWeights(c, l.grad_out, l.values_read_t, scale, false, l.write_weights,
                l.write_weights_t);
    PairWeights(c, l.grad_past, l.values_t, 1.0f, true, l.past_weights,
                l.past_weights_t);
    PairWeights(c, l.grad_past, l.values_read_t, 1.0f, true, l.pair_weights,
                l.pair_weights_t);
    if (!IsGated(in)) {
      PairRowGradients(c);
    } else {
      const std::array<NearPairs, 4> near = NearOfPair(c);
      for (const NearPairs& pairs : near) TakeNear(pairs);
      PairRowGradients(c);
      PairGateGradients(c);
      for (const NearPairs& pairs : near) AddNear(pairs, at.key);
    }
    if (!c.s.leaves_state) return;
    RowPrefetcher nothing;
    ForPanels(at.value, [&](auto n, int64_t v) HWY_ATTR {
      constexpr int kVectors = decltype(n)::value;
      float* panel = c.grad_state + v * at.key;
      DecayPanel<true, kVectors>(w + l.decayed_queries, at.key,
                                 w + l.grad_out + v, at.value, c.s.rows, at.key,
                                 w + at.end_decay, panel, panel, nothing);
      UpdatePanel(w + l.past_keys, at.key, w + l.grad_past + v, at.value,
                  c.s.rows, at.key, kVectors, panel, nothing);
    });
  }

  static void StoreRest(const RecurrentGradientTask& task,
                        const RecurrentGradientLayout& l, const ChunkSpan& s) {
    const int64_t key = l.chunk.key, d_key = task.in->keys.size[3];
    const TensorView &reads = task.grad->grad_reads,
                     &writes = task.grad->grad_writes;
    for (int64_t r = 0; r < s.rows; ++r) {
      StoreRow(reads.dtype, task.scratch + l.past_grad + r * key, d_key,
               reads.Row(s.batch, s.first + r, task.head));
      StoreRow(writes.dtype, task.scratch + l.writes_grad + r * key, d_key,
               writes.Row(s.batch, s.first + r, task.head));
    }
  }
};

static void DplrGradientSequence(const RecurrentGradientTask& task) {
  ChunkedGradient<PairCore>(task).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(DplrGradientSequence);

size_t DplrAttentionGradientBytes(const RecurrentInputs& in, int width,
                                  bool has_checkpoints) {
  return RecurrentGradientBytes(in, width, has_checkpoints);
}

void DplrAttentionBackward(const RecurrentOptions& options,
                           const RecurrentInputs& in,
                           const RecurrentGradients& gradients,
                           Executor& executor, void* workspace) {
  constexpr RecurrentOp kOp = {"dplr_attention", false, true};
  CheckRecurrent(kOp, options, in, gradients.grad_out, "grad_out");
  CheckRecurrentGradients(kOp, in, gradients);
  RunRecurrentGradient(options, in, gradients, executor, workspace,
                       [](const RecurrentGradientTask& task) {
                         HWY_DYNAMIC_DISPATCH(DplrGradientSequence)(task);
                       });
}

}  // namespace tarn
#endif  // HWY_ONCE
