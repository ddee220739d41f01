// The keys of linear attention (section "linear" of config.json), which every
// mixer that maps queries and keys to features reads.
#pragma once

#include <cstdint>

#include "config/model_config.h"
#include "core/feature_map.h"

namespace tarn {

struct LinearKeys {
  explicit LinearKeys(const ModelConfig& layer);
  /// C, the entries of phi(x) for a query or key x of that width.
  int64_t Width(int64_t d_key) const {
    return FeatureWidth(feature_map, d_key, n_dims);
  }

  FeatureMap feature_map;
  Denominator denominator;
  double eps;                // used by "compat" only
  int64_t n_dims;            // columns of a random map
  bool stabilise;            // favor, favor-positive
  int64_t redraw;            // updates between draws of omega; 0: never
  int64_t feature_seed;      // of omega
  RotaryPlace rotary_place;  // the model's
};

/// Whether any layer of a finished model maps queries and keys to features.
bool UsesFeatureMap(const ModelConfig& finished);

}  // namespace tarn
