// What both sweeps of the gradient are told, and where their scratch lies.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/linear_attention/linear_attention.h"

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
};

// Scratch of a worker, in floats; both sweeps use the same parts.
struct BackwardLayout {
  int64_t chunk, key, value;
  int64_t queries, keys, keys_t, values, values_t, grad_out, grad_den, scores,
      grad_scores, grad_row, grad_col, factors, state, normalizer, total;
  BackwardLayout(int64_t chunk_tokens, int64_t d_key, int64_t d_value,
                 int64_t states) {
    chunk = chunk_tokens;
    key = (d_key + 15) / 16 * 16;
    value = (d_value + 15) / 16 * 16;
    int64_t at = 0;
    const auto take = [&at](int64_t floats) {
      const int64_t begin = at;
      at += floats;
      return begin;
    };
    queries = take(chunk * key);
    keys = take(chunk * key);
    keys_t = take(chunk * key);
    values = take(chunk * value);
    values_t = take(chunk * value);
    grad_out = take(chunk * value);
    grad_den = take(chunk);
    scores = take(chunk * chunk);
    grad_scores = take(chunk * chunk);
    grad_row = take(chunk * key);
    grad_col = take(chunk * std::max(key, value));
    factors = take(chunk);
    // A state for each value head of the task: [value, key] in the sweep over
    // queries, [key, value] in the other.
    state = take(states * key * value);
    normalizer = take(states * key);
    total = at;
  }
};

}  // namespace tarn
