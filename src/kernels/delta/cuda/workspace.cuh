// What the kernels of a call leave for each other in the caller's workspace.
// Everything is indexed by slot * value_heads + value_head, slots of chunks
// (spans.cuh) first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/delta/cuda/spans.cuh"

namespace tarn::cuda::delta {

// Factors of a chunk's 64 rows: e^{G_i}, e^{G_C - G_i} and betas.
constexpr int kFactors = 3 * kChunk;

template <typename T>
struct Workspace {
  T* scores = nullptr;       // P [64, 64]: scale q_i.k_j e^{G_i - G_j}, i >= j
  T* solve = nullptr;        // (I + X Diag(beta))^-1 [64, 64]
  float* factors = nullptr;  // [3, 64]

  // Gates per channel alone: e^{G_i} q_i scale, e^{G_i} k_i, e^{G_C - G_i} k_i,
  // each [64, K], and e^{G_C} [K]; K padded.
  T *start_queries = nullptr, *start_keys = nullptr, *end_keys = nullptr;
  float* end_decays = nullptr;

  // The gradient alone: (I + Diag(beta) X)^-1 [64, 64], R [64, V], S and dS
  // [K, V] as operands of products, parts of dbeta [tiles, 64] and of dg [K /
  // 64, 64]; K, V padded.
  T *solve_left = nullptr, *residuals = nullptr;
  T *states = nullptr, *grad_states = nullptr;
  float *grad_betas = nullptr, *grad_gates = nullptr;
  // Where value heads share keys: their parts of dq and dk, [64, K] each.
  float *query_parts = nullptr, *key_parts = nullptr;
  // With gates per channel: scale S dO, -S dV and beta dS R, [64, K] each, rows
  // of S . dS [K], scale dP and dX [2, 64, 64], all without decays.
  float *state_queries = nullptr, *state_past = nullptr, *state_keys = nullptr;
  float *state_dots = nullptr, *pair_weights = nullptr;
  float* checkpoints = nullptr;  // where the caller gives none
};

// What a call needs of it.
struct WorkspaceNeeds {
  int key = 128;  // padded K
  bool vector = false, gradient = false;
  int64_t checkpoints = 0;  // states
};

// The parts from `base` on, and the bytes of all.
template <typename T>
Workspace<T> LayOut(const Call& call, const WorkspaceNeeds& needs, void* base,
                    size_t* bytes) {
  const auto chunks =
      static_cast<size_t>(call.sequences.Slots() * call.value_heads);
  const auto tiles = static_cast<size_t>(call.ValueTiles());
  const auto key = static_cast<size_t>(needs.key);
  const size_t value = tiles * kValueTile;
  size_t at = 0;
  const auto take = [&](auto*& part, bool needed, size_t count) {
    if (!needed) return;
    part = reinterpret_cast<std::remove_reference_t<decltype(part)>>(
        reinterpret_cast<uintptr_t>(base) + at);
    at += (count * sizeof(*part) + 255) / 256 * 256;
  };
  Workspace<T> w;
  take(w.scores, true, chunks * kChunk * kChunk);
  take(w.solve, true, chunks * kChunk * kChunk);
  take(w.factors, true, chunks * kFactors);
  take(w.start_queries, needs.vector, chunks * kChunk * key);
  take(w.start_keys, needs.vector, chunks * kChunk * key);
  take(w.end_keys, needs.vector, chunks * kChunk * key);
  take(w.end_decays, needs.vector, chunks * key);
  take(w.solve_left, needs.gradient, chunks * kChunk * kChunk);
  take(w.residuals, needs.gradient, chunks * kChunk * value);
  take(w.states, needs.gradient, chunks * key * value);
  take(w.grad_states, needs.gradient, chunks * key * value);
  take(w.grad_betas, needs.gradient, chunks * tiles * kChunk);
  take(w.grad_gates, needs.gradient && !needs.vector,
       chunks * kChunk * key / 64);
  const bool grouped = needs.gradient && call.group > 1;
  take(w.query_parts, grouped, chunks * kChunk * key);
  take(w.key_parts, grouped, chunks * kChunk * key);
  const bool terms = needs.gradient && needs.vector;
  take(w.state_queries, terms, chunks * kChunk * key);
  take(w.state_past, terms, chunks * kChunk * key);
  take(w.state_keys, terms, chunks * kChunk * key);
  take(w.state_dots, terms, chunks * key);
  take(w.pair_weights, terms, chunks * 2 * kChunk * kChunk);
  take(w.checkpoints, needs.checkpoints > 0,
       static_cast<size_t>(needs.checkpoints * call.value_heads * call.d_key *
                           call.d_value));
  *bytes = at;
  return w;
}

}  // namespace tarn::cuda::delta
