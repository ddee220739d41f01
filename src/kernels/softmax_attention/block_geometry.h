// Which keys a query may read by position, how sequences are cut into blocks,
// and where a worker's scratch is.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/dropout/dropout.h"
#include "kernels/scratch.h"
#include "kernels/softmax_attention/blocked_attention.h"

namespace tarn {

// 64 x 64 scores are 16 KiB: with 64 rows of keys and of values of width 64
// they stay in L2, and loading a key costs 1 / 64 of its products.
constexpr int64_t kQueryBlock = 64, kKeyBlock = 64;

// One call, as tasks see it.
struct BlockedCall {
  const BlockedAttentionOptions* options;
  const BlockedAttentionInputs* in;
  DropoutKey dropout;

  int64_t heads() const { return in->queries.size[2]; }
  int64_t seq_len() const { return in->queries.size[1]; }
  int64_t key_len() const { return in->keys.size[1]; }
  int64_t d_key() const { return in->keys.size[3]; }
  int64_t d_value() const { return in->values.size[3]; }
  // Keys of a batch row before its padding.
  int64_t kept_keys(int64_t batch) const {
    return in->key_lengths == nullptr ? key_len() : in->key_lengths[batch];
  }
};

struct KeyRange {
  int64_t begin, end;  // empty: begin = end
};

// Keys that query i may read by position.
inline KeyRange AllowedKeys(const BlockedAttentionOptions& options, int64_t i,
                            int64_t kept_keys) {
  constexpr int64_t kFar = int64_t{1} << 60;  // sums below cannot overflow
  int64_t begin = 0, end = kept_keys;
  if (options.causal) {
    end = std::min(end, i + std::clamp(options.causal_offset, -kFar, kFar) + 1);
  }
  if (options.local_context > 0) {
    const int64_t context = std::min(options.local_context, kFar);
    begin = std::max(begin, i - context / 2);
    end = std::min(end, i + (context + 1) / 2);
  }
  if (options.window > 0) {
    begin = std::max(begin, i + std::clamp(options.causal_offset, -kFar, kFar) -
                                std::min(options.window, kFar) + 1);
  }
  end = std::max(end, begin);
  return {begin, end};
}

// A block of queries of one head, and what its rows may read.
struct QueryBlock {
  int64_t batch, head;
  int64_t first, rows;  // queries [first, first + rows)
  int64_t lanes;        // rows, padded to whole vectors
  KeyRange keys;        // union over the rows
  bool finite;          // no NaN or infinity in what was loaded
  KeyRange row[kQueryBlock];
};

inline QueryBlock QueriesAt(const BlockedCall& call, int64_t batch,
                            int64_t head, int64_t block) {
  QueryBlock q;
  q.batch = batch;
  q.head = head;
  q.first = block * kQueryBlock;
  q.rows = std::min(kQueryBlock, call.seq_len() - q.first);
  q.lanes = PadRow(q.rows);
  q.finite = true;
  q.keys = {call.key_len(), 0};
  const int64_t kept = call.kept_keys(batch);
  for (int64_t r = 0; r < q.rows; ++r) {
    q.row[r] = AllowedKeys(*call.options, q.first + r, kept);
    if (q.row[r].begin == q.row[r].end) continue;
    q.keys.begin = std::min(q.keys.begin, q.row[r].begin);
    q.keys.end = std::max(q.keys.end, q.row[r].end);
  }
  // Lanes without a query take part, but their results are not stored.
  for (int64_t r = q.rows; r < kQueryBlock; ++r) q.row[r] = q.keys;
  return q;
}

inline int64_t QueryBlocks(const BlockedCall& call) {
  return (call.seq_len() + kQueryBlock - 1) / kQueryBlock;
}

// The part of a key block that a query block reads: its rows [begin, end),
// multiples of 4 as the tiles of products require.
struct KeyBlock {
  int64_t first;       // key of row 0
  int64_t begin, end;  // empty: begin >= end
  bool ranges;         // some pair in it is outside its row's range
  bool dropped;        // some key in it is not kept by key_mask
  bool finite;         // no NaN or infinity among its kept keys and values
};

inline KeyBlock KeysAt(const QueryBlock& q, int64_t block) {
  KeyBlock k;
  k.first = block * kKeyBlock;
  const KeyRange used = {std::max<int64_t>(q.keys.begin - k.first, 0),
                         std::min(q.keys.end - k.first, kKeyBlock)};
  k.begin = used.begin / 4 * 4;
  k.end = (used.end + 3) / 4 * 4;
  k.ranges = false;
  for (int64_t r = 0; r < q.rows; ++r) {
    k.ranges = k.ranges || q.row[r].begin > k.first + k.begin ||
               q.row[r].end < k.first + k.end;
  }
  k.dropped = false;
  k.finite = true;
  return k;
}

// Scratch of a worker, in floats. Parts for the gradient are empty without it.
struct BlockLayout {
  int64_t key, value;  // padded K and V
  int64_t queries, queries_t, keys, values, scores_t, out, range_begin,
      range_end, kept, row_max, row_sum, correction, plane, plane_t, factors,
      factors_t;
  int64_t grad_out, grad_out_t, grad_scores_t, slopes_t, grad_queries, delta,
      grad_keys, grad_values;
  bool backward;
  int64_t total;

  BlockLayout(const BlockedAttentionInputs& in, bool with_gradient)
      : backward(with_gradient) {
    key = PadRow(in.keys.size[3]);
    value = PadRow(in.values.size[3]);
    const int64_t key_rows =
        (in.keys.size[1] + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
    ScratchPlan plan;
    queries = plan.Take(kQueryBlock * key);
    queries_t = plan.Take(kQueryBlock * key);
    keys = plan.Take(kKeyBlock * key);
    values = plan.Take(kKeyBlock * value);
    scores_t = plan.Take(kKeyBlock * kQueryBlock);
    out = plan.Take(kQueryBlock * value);
    range_begin = plan.Take(kQueryBlock);
    range_end = plan.Take(kQueryBlock);
    kept = plan.Take(kKeyBlock);
    row_max = plan.Take(kQueryBlock);
    row_sum = plan.Take(kQueryBlock);
    correction = plan.Take(kQueryBlock);
    plane = plan.Take(kQueryBlock * kKeyBlock);
    plane_t = plan.Take(kQueryBlock * kKeyBlock);
    factors = plan.Take(kQueryBlock * kDropoutBlock);
    factors_t = plan.Take(kQueryBlock * kKeyBlock);
    const int64_t on = backward ? 1 : 0;
    grad_out = plan.Take(on * kQueryBlock * value);
    grad_out_t = plan.Take(on * kQueryBlock * value);
    grad_scores_t = plan.Take(on * kKeyBlock * kQueryBlock);
    slopes_t = plan.Take(on * kKeyBlock * kQueryBlock);
    grad_queries = plan.Take(on * kQueryBlock * key);
    delta = plan.Take(on * kQueryBlock);
    grad_keys = plan.Take(on * key_rows * key);
    grad_values = plan.Take(on * key_rows * value);
    total = plan.total();
  }
};

}  // namespace tarn
