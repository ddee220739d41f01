// Softmax attention of one query over a cache of keys and values.
//   s_j = scale q . k_j;  p_j = exp(s_j - max s) / sum;  o = sum_j p_j v_j
// With a soft cap c (Gemma 2, arXiv 2408.00118), s_j = c tanh(scale q . k_j /
// c). With a sink t (Xiao et al. 2024, arXiv 2309.17453; learned as in gpt-oss,
// arXiv 2508.10925), exp(t - max) joins the sum, and no value belongs to it.
#pragma once

#include <cstdint>

#include "kernels/softmax_attention/cache_type.h"

namespace tarn {

/// One head of a key-value cache: key j at keys + j * key_stride, and so on.
/// Rows of `type`, whose words are floats here (cache_rows.h); a row may have
/// more numbers than the first d_key or d_value, which are read.
struct KeyValueCache {
  const float* keys = nullptr;               // [seq_len, d_key]
  const float* values = nullptr;             // [seq_len, d_value]
  int64_t key_stride = 0, value_stride = 0;  // in words
  int64_t seq_len = 0;                       // >= 1
  int64_t d_key = 0, d_value = 0;
  /// Keys and values are read once and come from memory: they are prefetched
  /// ahead of their use, and `next` (null: nothing) after the last of them.
  bool streams = false;
  const float* next = nullptr;
  CacheType type = CacheType::kF32;
};

struct SoftmaxStepOptions {
  float scale = 1.0f;
  float softcap = 0.0f;         // c; 0: none
  const float* sink = nullptr;  // t; null: none
};

/// query: [d_key]; out: [d_value]; scores: scratch, [seq_len]. The order of
/// every sum depends on the sizes and the SIMD target alone: rounded rows give
/// the bits of a float32 cache that holds their numbers. A NaN among the
/// scores makes the whole result NaN. Allocates nothing, thread-safe,
/// O(seq_len (d_key + d_value)).
void SoftmaxAttentionStep(const float* query, const KeyValueCache& cache,
                          const SoftmaxStepOptions& options, float* scores,
                          float* out);
/// The same without cap and sink.
inline void SoftmaxAttentionStep(const float* query, const KeyValueCache& cache,
                                 float scale, float* scores, float* out) {
  SoftmaxAttentionStep(query, cache, SoftmaxStepOptions{scale}, scores, out);
}

}  // namespace tarn
