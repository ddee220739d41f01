// How a call of the gated recurrences is cut into sequences, chunks and tasks,
// and where a worker's scratch is. Plain integers, no tensor data.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/recurrence/recurrent_inputs.h"
#include "kernels/scratch.h"

namespace tarn {

// Tokens of a chunk: one block of scores (scores-inl.h).
constexpr int64_t kRecurrentChunk = 16;
// Tokens between checkpoints, a multiple of the chunk.
constexpr int64_t kRecurrentGroup = 256;
constexpr int64_t kGroupChunks = kRecurrentGroup / kRecurrentChunk;

// One sequence of a call: a row of the views, its first token, its tokens, and
// the rows of the view that belong to it (tokens and padding).
struct TokenSpan {
  int64_t batch, first, tokens, rows;
  int64_t checkpoint;  // slot of the state before token 256
  int64_t chunks() const {
    return (tokens + kRecurrentChunk - 1) / kRecurrentChunk;
  }
  int64_t groups() const {
    return (tokens + kRecurrentGroup - 1) / kRecurrentGroup;
  }
};

// A packed sequence finds its checkpoints by its first token: floor(cu[n] /
// 256) leaves every sequence the floor(tokens / 256) slots that it needs.
inline TokenSpan SpanAt(const RecurrentInputs& in, int64_t index) {
  if (in.cu_seqlens != nullptr) {
    const int64_t first = in.cu_seqlens[index];
    const int64_t tokens = in.cu_seqlens[index + 1] - first;
    return {0, first, tokens, tokens, first / kRecurrentGroup};
  }
  const int64_t rows = in.queries.size[1];
  const int64_t tokens = in.lengths != nullptr ? in.lengths[index] : rows;
  return {index, 0, tokens, rows, index * (rows / kRecurrentGroup)};
}

// The tokens of one chunk: `rows` of them from `first` on in the views' row.
struct ChunkSpan {
  int64_t batch, first, rows;
  bool reads_state, leaves_state;
};

inline ChunkSpan ChunkAt(const TokenSpan& s, int64_t index) {
  const int64_t at = index * kRecurrentChunk;
  return {s.batch, s.first + at, std::min(kRecurrentChunk, s.tokens - at), true,
          true};
}

// One task of the forward call: a sequence, some adjacent value heads and a
// slice of value columns.
struct RecurrentTask {
  const RecurrentOptions* options;
  const RecurrentInputs* in;
  const RecurrentOutputs* out;
  int64_t sequence, first_head, heads, column, columns;
  float* scratch;
};

// One task of the gradient: a sequence and a query/key head with `group`
// adjacent ones of the value heads it serves, in index order. Their sums are dq
// and dk where they are all that it serves, else parts of them.
struct RecurrentGradientTask {
  const RecurrentOptions* options;
  const RecurrentInputs* in;
  const RecurrentGradients* grad;
  int64_t sequence, head, value_head, group;
  // Groups of tokens [end, begin), in reverse; the contents of scratch carry
  // over from task to task of one sequence.
  int64_t begin, end;
  float* scratch;
  float *query_parts, *key_parts;  // [256, PadRow(K)] for one group, or null
  double* head_gate_sums;  // [group]: this sequence's part of grad_head_gates
  float* bonus_sums;       // [group, PadRow(K)]: of grad_bonus
};

// Whether the call has gates of any kind.
inline bool IsGated(const RecurrentInputs& in) {
  return in.HasGates() || in.head_gates != nullptr;
}

// Parts of scratch that hold one chunk of one value head, in floats; every part
// is a multiple of 16. C = 16 tokens; rows are padded to 16 floats.
struct ChunkParts {
  int64_t key, value;  // padded K, padded V (of a slice)
  int64_t queries, queries_t, keys, keys_t, values;
  int64_t gates;  // factors of the chunk: [C], or [C, key] for vector gates
  int64_t from_start, to_end;  // [C], or [C, key]
  int64_t pairs, pairs_t;      // E [C, C], rows i and rows j; scalar gates
  int64_t end_decay;           // the state's factor over the chunk, [key]
  int64_t scores;              // P
  int64_t betas, solve, residuals, past_keys_t;  // delta alone
  int64_t spare;                                 // [C, key], vector gates
  // The low-rank pair alone, whose decays are held as vectors: rows c and b,
  // their transposes, scores q b (inclusive), c k (of the past); solve holds
  // those of c with b, residuals what is read, past_keys_t Ct^T.
  int64_t reads, writes, writes_t, write_scores, past_scores;

  ChunkParts(ScratchPlan& plan, const RecurrentInputs& in, int64_t columns) {
    constexpr int64_t C = kRecurrentChunk;
    const bool pair = in.HasPair(), solves = pair || in.HasBetas();
    const bool vector_gates = pair || in.VectorGates();
    key = PadRow(in.keys.size[3]);
    value = PadRow(columns);
    queries = plan.Take(C * key);
    queries_t = plan.Take(C * key);
    keys = plan.Take(C * key);
    keys_t = plan.Take(C * key);
    values = plan.Take(C * value);
    gates = plan.Take(vector_gates ? C * key : C);
    from_start = plan.Take(vector_gates ? C * key : C);
    to_end = plan.Take(vector_gates ? C * key : C);
    pairs = plan.Take(C * C);
    pairs_t = plan.Take(C * C);
    end_decay = plan.Take(key);
    scores = plan.Take(C * C);
    betas = plan.Take(C);
    solve = plan.Take(solves ? C * C : 0);
    residuals = plan.Take(solves ? C * value : 0);
    past_keys_t = plan.Take(solves ? C * key : 0);
    spare = plan.Take(vector_gates ? C * key : 0);
    reads = plan.Take(pair ? C * key : 0);
    writes = plan.Take(pair ? C * key : 0);
    writes_t = plan.Take(pair ? C * key : 0);
    write_scores = plan.Take(pair ? C * C : 0);
    past_scores = plan.Take(pair ? C * C : 0);
  }
};

// Scratch of a worker in the forward call.
struct RecurrentForwardLayout {
  ScratchPlan plan;
  ChunkParts chunk;
  int64_t out, state, total;
  RecurrentForwardLayout(const RecurrentInputs& in, int64_t columns,
                         int64_t heads)
      : chunk(plan, in, columns) {
    out = plan.Take(kRecurrentChunk * chunk.value);
    // A state for each head of the task, in panels.
    state = plan.Take(heads * chunk.key * PadState(columns));
    total = plan.total();
  }
};

}  // namespace tarn
