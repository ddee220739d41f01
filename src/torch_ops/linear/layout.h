// Tokens in chunks: the one grid on which queries and keys of a call are side
// by side, so that query slot q reads key slot k where k <= q, whatever the
// causal offset and the packing. Sizes may be symbolic.
//
// A query that reads keys j <= i + offset is `offset` slots after its own
// index, or the keys are -offset slots after theirs. Sequences packed along one
// axis each begin at a new chunk, so that no chunk holds two of them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <cstdint>

#include "torch_ops/common/call.h"

namespace tarn::ops {

class ChunkLayout {
 public:
  /// Rows of `in` under `settings`; a call of packed sequences has at least
  /// one.
  ChunkLayout(const Operands& in, const Settings& settings);

  int64_t chunk() const { return chunk_; }               // C slots
  const c10::SymInt& chunks() const { return chunks_; }  // N

  /// Rows [.., T, width] or [.., S, width] as chunks [.., N, C, width]; slots
  /// without a row are 0.
  at::Tensor PlaceQueries(const at::Tensor& rows) const;
  at::Tensor PlaceKeys(const at::Tensor& rows) const;
  /// Back again: [.., N, C, width] to [.., T, width].
  at::Tensor TakeQueries(const at::Tensor& chunks) const;

  /// sums [B, H, N, ...] of the chunks -> of all chunks before each one in its
  /// own sequence. O(N) time, packed O(N log N): no sum is ever subtracted.
  at::Tensor Before(const at::Tensor& sums) const;
  /// The sums of whole sequences, [sequences, H, ...].
  at::Tensor Total(const at::Tensor& sums) const;
  /// states [sequences, H, ...] as each chunk sees them: [B, H, N or 1, ...].
  at::Tensor ByChunk(const at::Tensor& states) const;

 private:
  at::Tensor Place(const at::Tensor& rows, const c10::SymInt& before,
                   const at::Tensor& slots) const;
  at::Tensor Through(const at::Tensor& sums) const;

  bool packed_ = false;
  int64_t chunk_ = 64;
  c10::SymInt chunks_, queries_, keys_;
  c10::SymInt before_queries_ = 0, before_keys_ = 0;  // slots, not packed
  at::Tensor query_slots_, key_slots_;                // [T], packed
  at::Tensor sequence_;  // [N] of each chunk, packed
  at::Tensor ends_;      // [sequences] chunks up to and with each, packed
};

}  // namespace tarn::ops
