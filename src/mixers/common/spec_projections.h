// What the attention mixers have in common: four projections around the heads.
#pragma once

#include <string>
#include <vector>

#include "config/model_config.h"

namespace tarn {

/// query_projection and key_projection [H K, D], value_projection [H V, D] and
/// out_projection [D, H V], weight and bias each, as fast-transformers names
/// them.
std::vector<NamedShape> ProjectionShapes(const ModelConfig& layer);

/// Keys [H, K] and values [H, V] of every token: the state of mixers that keep
/// them.
StateSpec KeyValueCacheState(const ModelConfig& layer);

}  // namespace tarn
