// What both sweeps of the gradient receive, and where their scratch is.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/linear_attention/linear_attention.h"
#include "kernels/scratch.h"

namespace tarn {

// One task: a sweep of one sequence and some adjacent query/key heads. The
// value heads of each are taken in index order (their sums go into dq, dk).
struct BackwardTask {
  const LinearAttentionOptions* options;
  const LinearAttentionInputs* in;
  const LinearAttentionGradients* grad;
  int64_t sequence, first_head, heads;
  int64_t group;  // value heads a head serves
  float* scratch;
  bool with_queries = false;  // the sweep over keys makes dq too: IsOneChunk
};

// Whether the gradient of a state comes in or goes out.
inline bool CarriesStates(const LinearAttentionGradients& g) {
  return g.grad_final_S != nullptr || g.grad_final_z != nullptr ||
         g.grad_initial_S != nullptr || g.grad_initial_z != nullptr;
}

// Scratch of a worker, in floats; both sweeps use the same parts.
struct BackwardLayout {
  int64_t chunk, key, value;
  int64_t queries, keys, keys_t, values, values_t, grad_out, grad_out_t,
      grad_den, scores, grad_scores, grad_row, grad_col, grad_query_row,
      staging, key_sums, grad_queries, state, normalizer, total;
  int64_t state_floats;  // of one value head
  BackwardLayout(int64_t chunk_tokens, int64_t d_key, int64_t d_value,
                 int64_t states, bool with_queries) {
    chunk = chunk_tokens;
    key = PadRow(d_key);
    value = PadRow(d_value);
    ScratchPlan plan;
    const int64_t wide = std::max(key, value);
    queries = plan.Take(chunk * key);
    keys = plan.Take(chunk * key);
    keys_t = plan.Take(chunk * key);
    // Parts that are not in use at the same time share their place, so that all
    // of them and a state of 64 x 64 stay in L1.
    values = grad_col = plan.Take(chunk * wide);
    values_t = grad_out_t = staging = plan.Take(chunk * wide);
    grad_out = grad_queries = plan.Take(chunk * wide);
    grad_den = plan.Take(chunk);
    scores = plan.Take(chunk * chunk);
    grad_scores = plan.Take(chunk * chunk);
    grad_row = plan.Take(chunk * key);
    grad_query_row = plan.Take(with_queries ? chunk * key : 0);
    key_sums = plan.Take(key);
    // A state for each value head of the task, in panels: [value, key] in the
    // sweep over queries, [key, value] in the other.
    state_floats = std::max(key * PadState(value), value * PadState(key));
    state = plan.Take(states * state_floats);
    normalizer = plan.Take(states * key);
    total = plan.total();
  }
};

}  // namespace tarn
