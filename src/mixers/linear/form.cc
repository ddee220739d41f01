#include "mixers/linear/form.h"

namespace tarn {

LinearKeys::LinearKeys(const ModelConfig& layer)
    : feature_map(KeyOf<FeatureMap>(layer, "feature_map")),
      denominator(KeyOf<Denominator>(layer, "denominator")),
      eps(KeyOf<double>(layer, "eps")),
      n_dims(KeyOf<int64_t>(layer, "n_dims")),
      stabilise(KeyOf<bool>(layer, "stabilise")),
      redraw(KeyOf<int64_t>(layer, "redraw")),
      feature_seed(KeyOf<int64_t>(layer, "feature_seed")),
      rotary_place(layer.rotary_place) {}

bool UsesFeatureMap(const ModelConfig& finished) {
  return ReadsSection(finished, "linear");
}

}  // namespace tarn
