// Scratch of a worker in the gradient of the gated recurrences.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/recurrence/tasks.h"

namespace tarn {

// A query/key head that serves many value heads (Mamba-2: one all of them) is
// cut into tasks of up to so many: threads share it, and the states of a task
// stay within a cache. The cut depends on the shape alone, and so do the
// bits.
constexpr int64_t kGradientHeads = 4;

inline int64_t GradientBlocks(const RecurrentInputs& in) {
  const int64_t group = in.values.size[2] / in.keys.size[2];
  return (group + kGradientHeads - 1) / kGradientHeads;
}

// `chunk` holds the rows of the chunk as they are (queries, keys and their
// transposes), values V or U, and the decays. The states before each chunk of
// a group of 256 tokens, and the one after it, are rebuilt at once.
struct RecurrentGradientLayout {
  ScratchPlan plan;
  ChunkParts chunk;
  int64_t head_scores;  // Q K^T by rows over keys, for all heads of a group
  int64_t decayed_queries, decayed_keys_t, past_keys;  // Qt, Kb^T, Pt or Ct
  int64_t values_t, grad_out, grad_out_t, grad_values, grad_past, grad_past_t;
  int64_t weights, weights_t, past_weights, past_weights_t;  // dP E, dX E
  int64_t from_start_t, to_end_t;                    // [key, C], vector gates
  int64_t queries_t_grad, keys_t_grad, past_t_grad;  // [key, C]
  int64_t queries_grad, keys_grad, past_grad;        // [C, key]
  int64_t queries_sum, keys_sum;                     // over a group's heads
  int64_t bonus_lanes;  // dO_i . v_i * scale [C]: the exclusive read
  // Weights of pairs that pass no gate [C], by queries; [4, C] for the low-rank
  // pair: q with k, q with b, c with k, c with b.
  int64_t near_lanes;
  int64_t pair_parts;  // dP_ij P_ij by rows over keys [C, C]: dg
  int64_t query_parts, past_parts, key_parts;  // q dq, p dp, k dk of states [C]
  int64_t gate_rows, state_rows;  // dg [C] or [C, key]; sums of S dS [key]
  int64_t state_floats, states, grad_states, checkpoints;
  int64_t kept_floats, kept;  // R and -X of every chunk of a group: delta
  int64_t heads, slots;       // value heads of a task; checkpoints of each
  // The low-rank pair: Z^T, dP of q with b and of c with b, Bb^T, F_{i-1}^T,
  // db. Where the delta rule has Pt, dY and dp, the pair has Ct, dZ and dc.
  int64_t values_read_t, write_weights, write_weights_t, pair_weights,
      pair_weights_t, decayed_writes_t, past_start_t, writes_t_grad,
      writes_grad;
  int64_t total;

  RecurrentGradientLayout(const RecurrentInputs& in, bool has_checkpoints)
      : chunk(plan, in, in.values.size[3]) {
    constexpr int64_t C = kRecurrentChunk;
    const bool pair = in.HasPair(), solves = pair || in.HasBetas();
    const bool vector = pair || in.VectorGates();
    const int64_t key = chunk.key, value = chunk.value;
    const int64_t blocks = GradientBlocks(in);
    heads = (in.values.size[2] / in.keys.size[2] + blocks - 1) / blocks;
    head_scores = plan.Take(C * C);
    decayed_queries = plan.Take(C * key);
    decayed_keys_t = plan.Take(C * key);
    past_keys = plan.Take(solves ? C * key : 0);
    values_t = plan.Take(C * value);
    grad_out = plan.Take(C * value);
    grad_out_t = plan.Take(C * value);
    grad_values = plan.Take(C * value);
    grad_past = plan.Take(solves ? C * value : 0);
    grad_past_t = plan.Take(solves ? C * value : 0);
    weights = plan.Take(C * C);
    weights_t = plan.Take(C * C);
    past_weights = plan.Take(solves ? C * C : 0);
    past_weights_t = plan.Take(solves ? C * C : 0);
    from_start_t = plan.Take(vector ? C * key : 0);
    to_end_t = plan.Take(vector ? C * key : 0);
    queries_t_grad = plan.Take(C * key);
    keys_t_grad = plan.Take(C * key);
    past_t_grad = plan.Take(solves ? C * key : 0);
    queries_grad = plan.Take(C * key);
    keys_grad = plan.Take(C * key);
    past_grad = plan.Take(solves ? C * key : 0);
    queries_sum = plan.Take(C * key);
    keys_sum = plan.Take(C * key);
    bonus_lanes = plan.Take(C);
    near_lanes = plan.Take(pair ? 4 * C : C);
    pair_parts = plan.Take(C * C);
    query_parts = plan.Take(C);
    past_parts = plan.Take(C);
    key_parts = plan.Take(C);
    gate_rows = plan.Take(vector ? C * key : C);
    state_rows = plan.Take(key);
    state_floats = key * PadState(in.values.size[3]);
    grad_states = plan.Take(heads * state_floats);
    states = plan.Take(heads * (kGroupChunks + 1) * state_floats);
    kept_floats = solves ? C * value + C * C : 0;
    kept = plan.Take(heads * kGroupChunks * kept_floats);
    slots = has_checkpoints ? 0 : in.queries.size[1] / kRecurrentGroup;
    checkpoints = plan.Take(heads * slots * state_floats);
    values_read_t = plan.Take(pair ? C * value : 0);
    write_weights = plan.Take(pair ? C * C : 0);
    write_weights_t = plan.Take(pair ? C * C : 0);
    pair_weights = plan.Take(pair ? C * C : 0);
    pair_weights_t = plan.Take(pair ? C * C : 0);
    decayed_writes_t = plan.Take(pair ? C * key : 0);
    past_start_t = plan.Take(pair ? C * key : 0);
    writes_t_grad = plan.Take(pair ? C * key : 0);
    writes_grad = plan.Take(pair ? C * key : 0);
    total = plan.total();
  }

  // Value head g of the task, chunk c of the group.
  int64_t State(int64_t g, int64_t c) const {
    return states + (g * (kGroupChunks + 1) + c) * state_floats;
  }
  int64_t GradState(int64_t g) const { return grad_states + g * state_floats; }
  int64_t Residuals(int64_t g, int64_t c) const {
    return kept + (g * kGroupChunks + c) * kept_floats;
  }
  int64_t Solve(int64_t g, int64_t c) const {
    return Residuals(g, c) + kRecurrentChunk * chunk.value;
  }
  int64_t Checkpoint(int64_t g, int64_t slot) const {
    return checkpoints + (g * slots + slot) * state_floats;
  }
};

}  // namespace tarn
