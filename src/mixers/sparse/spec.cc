#include "mixers/sparse/spec.h"

#include "config/bounds.h"
#include "mixers/common/spec_projections.h"

namespace tarn::mixers::sparse {

namespace {

constexpr int64_t kMaxBits = 63;  // a code is one int64

std::vector<OwnKey> Keys() {
  std::vector<OwnKey> keys = {
      {.name = "clusters",
       .help = "clusters of queries in the clustered mixers",
       .type = IntegerKey{1, kMaxWidth, 16}},
      {.name = "iterations",
       .help = "iterations of clustering",
       .type = IntegerKey{1, kMaxRounds, 10}},
      {.name = "bits",
       .help = "hash planes of the clustered mixers and 'reformer'",
       .type = IntegerKey{1, kMaxBits, 63}},
      {.name = "hash_bias",
       .help = "the clustered mixers hash with offsets",
       .type = FlagKey{true}},
      {.name = "hash_chunk",
       .help = "positions in a chunk of 'reformer'",
       .type = IntegerKey{1, kMaxCount, 32}},
      {.name = "rounds",
       .help = "hash rounds of 'reformer'",
       .type = IntegerKey{1, kMaxRounds, 4}}};
  for (OwnKey& key : keys) key.after = "cross_attention";
  return keys;
}

std::function<std::vector<const char*>(const ModelConfig&)> These(
    std::vector<const char*> keys) {
  return [keys = std::move(keys)](const ModelConfig&) { return keys; };
}

}  // namespace

std::vector<MixerSpec> Mixers() {
  const MixerSpec clustered = {
      .name = "clustered",
      .family = "sparse",
      .sections = {"sparse", "softmax"},
      .can = {.causal = false, .dropout = true},
      .weights = ProjectionShapes,
      .keys = Keys(),
      .reads = These(
          {"clusters", "iterations", "bits", "hash_bias", "attention_dropout"}),
      .place = 2};
  MixerSpec improved = clustered;
  improved.keys = {};
  improved.name = "improved-clustered";
  improved.reads = These({"clusters", "iterations", "bits", "hash_bias", "topk",
                          "attention_dropout"});
  MixerSpec causal = improved;
  causal.name = "causal-improved-clustered";
  causal.can.causal = true;
  causal.can.bidirectional = false;
  MixerSpec reformer = improved;
  reformer.name = "reformer";
  reformer.can.causal = true;
  reformer.reads = These({"bits", "hash_chunk", "rounds", "attention_dropout"});
  return {clustered, improved, causal, reformer};
}

}  // namespace tarn::mixers::sparse
