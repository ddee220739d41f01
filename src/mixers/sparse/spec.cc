#include "mixers/sparse/spec.h"

#include "mixers/common/projections.h"

namespace tarn::mixers {

std::vector<MixerSpec> SparseMixers() {
  const MixerSpec clustered = {.name = "clustered",
                               .family = "sparse",
                               .sections = {"sparse", "softmax"},
                               .can = {.causal = false, .dropout = true},
                               .weights = ProjectionShapes};
  MixerSpec improved = clustered;
  improved.name = "improved-clustered";
  MixerSpec causal = clustered;
  causal.name = "causal-improved-clustered";
  causal.can.causal = true;
  causal.can.bidirectional = false;
  MixerSpec reformer = clustered;
  reformer.name = "reformer";
  reformer.can.causal = true;
  return {clustered, improved, causal, reformer};
}

}  // namespace tarn::mixers
