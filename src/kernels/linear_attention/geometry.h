// One sequence of a call and how it is cut: shared by checks, forward and
// gradient. Plain integers, no tensor data.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/linear_attention/linear_attention.h"

namespace tarn {

// Chunk positions are those of keys; query i is at position i + offset and
// reads keys j <= i + offset. A non-causal call is the case offset = S: every
// query comes after every key. So one pass over positions covers all forms.
struct Sequence {
  int64_t batch;     // row of the views
  int64_t query_at;  // first query's row along T
  int64_t key_at;    // first key's row along S
  int64_t queries;   // T of this sequence
  int64_t keys;      // S of this sequence
  int64_t kept;      // keys at and after this one are padding (key_lengths)
  int64_t offset;    // clamped to [-T, S]: outside, nothing changes
  int64_t first_chunk, last_chunk;  // chunks to visit, [first, last)
  int64_t ahead;  // tokens from a row to the one to prefetch; < 0 in reverse
};

inline int64_t SequenceCount(const LinearAttentionInputs& in) {
  return in.cu_seqlens != nullptr ? in.sequences : in.queries.size[0];
}

inline int64_t FloorDiv(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

inline Sequence SequenceAt(const LinearAttentionOptions& options,
                           const LinearAttentionInputs& in, int64_t index,
                           int64_t chunk) {
  Sequence s{};
  if (in.cu_seqlens != nullptr) {
    s.query_at = s.key_at = in.cu_seqlens[index];
    s.queries = s.keys = in.cu_seqlens[index + 1] - in.cu_seqlens[index];
  } else {
    s.batch = index;
    s.queries = in.queries.size[1];
    s.keys = in.keys.size[1];
  }
  s.kept = in.key_lengths != nullptr ? in.key_lengths[index] : s.keys;
  s.offset = options.causal
                 ? std::clamp(options.causal_offset, -s.queries, s.keys)
                 : s.keys;
  s.first_chunk = FloorDiv(std::min<int64_t>(0, s.offset), chunk);
  const int64_t end = std::max(s.keys, s.queries + s.offset);
  s.last_chunk = FloorDiv(end + chunk - 1, chunk);
  s.ahead = chunk;
  return s;
}

// carries: whether states other than the initial one come in or go out. A short
// sequence without any is one chunk and so has no state at all, provided that
// the state is no narrower than the chunk, whose scores grow with its square.
inline int64_t ChunkTokens(const LinearAttentionOptions& options,
                           const LinearAttentionInputs& in, bool carries) {
  constexpr int64_t kBestChunk = 16;  // see docs/kernels.md
  if (options.chunk_size != 0) return options.chunk_size;
  const int64_t tokens = in.keys.size[1];
  if (carries || in.initial_S != nullptr || in.cu_seqlens != nullptr ||
      !options.causal || options.causal_offset != 0 ||
      in.queries.size[1] != tokens) {
    return kBestChunk;
  }
  for (const int64_t chunk : {2 * kBestChunk, 4 * kBestChunk}) {
    if (2 * tokens > chunk && tokens <= chunk && chunk <= in.keys.size[3] &&
        chunk <= in.values.size[3]) {
      return chunk;
    }
  }
  return kBestChunk;
}

// Whether every sequence is one chunk without a state before or after it: a
// chunk then has all that its gradients need.
inline bool IsOneChunk(const LinearAttentionOptions& options,
                       const LinearAttentionInputs& in, bool carries) {
  if (carries || in.initial_S != nullptr || in.cu_seqlens != nullptr ||
      in.queries.size[0] == 0) {
    return false;
  }
  const int64_t chunk = ChunkTokens(options, in, carries);
  const Sequence s = SequenceAt(options, in, 0, chunk);
  return s.last_chunk - s.first_chunk == 1;
}

// Rows of one chunk that are queries and rows that are keys, [begin, end).
struct ChunkRows {
  int64_t position;  // of row 0
  int64_t rows;      // rows in use, from 0
  int64_t query_begin, query_end;
  int64_t key_begin, key_end;
  // Whether the pass reaches the chunk with a state, and whether the state that
  // it leaves is read: the first and the last chunk of a pass have half the
  // work, and a sequence of one chunk has none of it.
  bool reads_state = true, leaves_state = true;
  // Rows that row tiles cover. Scores of all of them are written, because rows
  // after `rows` are zero but their product with stale scratch may not be.
  int64_t tile_rows() const { return (rows + 3) / 4 * 4; }
  bool has_queries() const { return query_begin < query_end; }
  bool has_keys() const { return key_begin < key_end; }
  bool AllQueries(int64_t chunk) const {
    return query_begin == 0 && query_end == chunk;
  }
  bool AllKeys(int64_t chunk) const {
    return key_begin == 0 && key_end == chunk;
  }
};

// Sets the state flags of chunk `index` in a pass that begins with or without a
// state and has to end with or without one.
inline void TellOfState(const Sequence& s, int64_t index, bool forward,
                        bool begins_with, bool ends_with, ChunkRows& rows) {
  const bool first = index == s.first_chunk, last = index + 1 == s.last_chunk;
  rows.reads_state = begins_with || !(forward ? first : last);
  rows.leaves_state = ends_with || !(forward ? last : first);
}

inline ChunkRows RowsOfChunk(const Sequence& s, int64_t index, int64_t chunk) {
  ChunkRows r{};
  r.position = index * chunk;
  const auto row = [&](int64_t position) {
    return std::clamp<int64_t>(position - r.position, 0, chunk);
  };
  r.query_begin = row(s.offset);
  r.query_end = row(s.queries + s.offset);
  r.key_begin = row(0);
  r.key_end = row(s.kept);
  r.rows =
      std::max(r.has_queries() ? r.query_end : 0, r.has_keys() ? r.key_end : 0);
  return r;
}

// Adjacent heads that one task processes together, chunk by chunk: in a
// time-first layout their rows touch, so that a page or line is fetched once
// instead of once per head. They are few enough to leave every worker two tasks
// and to keep the states (`state_floats` per head) within 128 KiB.
inline int64_t HeadsPerTask(int64_t heads, int64_t sequences, int width,
                            int64_t state_floats) {
  constexpr int64_t kMostHeads = 4, kStateFloats = 32768;
  const int64_t balanced = sequences * heads / (2 * int64_t{width});
  return std::clamp<int64_t>(
      std::min(balanced, kStateFloats / std::max<int64_t>(state_floats, 1)), 1,
      std::min(heads, kMostHeads));
}

}  // namespace tarn
