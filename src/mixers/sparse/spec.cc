#include "mixers/sparse/spec.h"

#include "mixers/common/projections.h"

namespace tarn::mixers {

namespace {

std::function<std::vector<const char*>(const ModelConfig&)> These(
    std::vector<const char*> keys) {
  return [keys = std::move(keys)](const ModelConfig&) { return keys; };
}

}  // namespace

std::vector<MixerSpec> SparseMixers() {
  const MixerSpec clustered = {.name = "clustered",
                               .family = "sparse",
                               .sections = {"sparse", "softmax"},
                               .can = {.causal = false, .dropout = true},
                               .weights = ProjectionShapes,
                               .reads = These({"clusters", "iterations", "bits",
                                               "hash_bias",
                                               "attention_dropout"})};
  MixerSpec improved = clustered;
  improved.name = "improved-clustered";
  improved.reads = These({"clusters", "iterations", "bits", "hash_bias", "topk",
                          "attention_dropout"});
  MixerSpec causal = improved;
  causal.name = "causal-improved-clustered";
  causal.can.causal = true;
  causal.can.bidirectional = false;
  MixerSpec reformer = clustered;
  reformer.name = "reformer";
  reformer.can.causal = true;
  reformer.reads =
      These({"bits", "hash_chunk", "rounds", "attention_dropout"});
  return {clustered, improved, causal, reformer};
}

}  // namespace tarn::mixers
