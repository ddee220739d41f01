// The keys of attention through hashes (section "sparse" of config.json).
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace tarn {

struct SparseKeys {
  explicit SparseKeys(const ModelConfig& layer)
      : clusters(KeyOf<int64_t>(layer, "clusters")),
        iterations(KeyOf<int64_t>(layer, "iterations")),
        bits(KeyOf<int64_t>(layer, "bits")),
        hash_bias(KeyOf<bool>(layer, "hash_bias")),
        hash_chunk(KeyOf<int64_t>(layer, "hash_chunk")),
        rounds(KeyOf<int64_t>(layer, "rounds")),
        topk(KeyOf<int64_t>(layer, "topk")) {}

  int64_t clusters, iterations;
  int64_t bits;  // of a hash
  bool hash_bias;
  int64_t hash_chunk, rounds;  // reformer
  int64_t topk;                // the improved clustered mixers
};

}  // namespace tarn
