#include "mixers/linear/spec.h"

#include "core/error.h"
#include "core/text.h"
#include "mixers/common/projections.h"

namespace tarn::mixers {
namespace {

int64_t Width(const ModelConfig& layer) {
  return FeatureWidth(layer.feature_map, layer.d_key, layer.n_dims);
}

std::vector<NamedShape> Weights(const ModelConfig& layer) {
  std::vector<NamedShape> shapes = ProjectionShapes(layer);
  for (NamedShape& omega : OmegaShapes(layer, "inner_attention.")) {
    shapes.push_back(std::move(omega));
  }
  return shapes;
}

}  // namespace

void CheckLinear(const ModelConfig& layer) {
  const FeatureMapTraits& row = Traits(layer.feature_map);
  const std::string named = StrCat(" for feature_map '", row.name, "'");
  if (layer.stabilise && !row.can_stabilise) {
    throw ArgumentError("stabilise", "false" + named, "true");
  }
  if (layer.stabilise && layer.denominator != Denominator::kExact) {
    throw ArgumentError("denominator", "exact with stabilise",
                        Name(layer.denominator));
  }
  const int64_t least = row.features_per_column > 1
                            ? row.features_per_column + row.constant_features
                            : 0;
  if (layer.n_dims < least) {
    throw ArgumentError("n_dims", StrCat(least, " or more", named),
                        StrCat(layer.n_dims));
  }
  // The numerator uses rotated features, which the kernels compute for single
  // entries only.
  if (layer.positions == Positions::kRotary &&
      layer.rotary_place == RotaryPlace::kAfter &&
      (!row.elementwise || layer.denominator == Denominator::kSigned)) {
    std::string maps;
    for (const FeatureMapTraits& one : kFeatureMaps) {
      if (one.elementwise) maps += StrCat(maps.empty() ? "" : ", ", one.name);
    }
    throw ArgumentError("rotary_place",
                        StrCat("before (after is for the maps ", maps,
                               " and the denominators exact, compat, none)"),
                        "after");
  }
}

std::vector<const char*> LinearReads(const ModelConfig& layer) {
  std::vector<const char*> keys = {"feature_map", "denominator"};
  if (layer.denominator == Denominator::kCompat) keys.push_back("eps");
  if (Traits(layer.feature_map).can_stabilise) keys.push_back("stabilise");
  if (UsesOmega(layer.feature_map)) {
    keys.insert(keys.end(), {"n_dims", "redraw", "feature_seed"});
  }
  return keys;
}

std::vector<NamedShape> OmegaShapes(const ModelConfig& layer,
                                    const std::string& prefix) {
  const int64_t columns = OmegaColumns(layer.feature_map, layer.n_dims);
  if (columns == 0) return {};
  return {{prefix + "feature_map.omega", {layer.d_key, columns}}};
}

StateSpec LinearState(const ModelConfig& layer) {
  const int64_t width = Width(layer);
  StateSpec state = {
      {.name = "S", .shape = {layer.n_heads, width, layer.d_value}},
      {.name = "z", .shape = {layer.n_heads, width}}};
  if (layer.denominator == Denominator::kSigned) {
    state.push_back({.name = "norm_sums", .shape = {layer.n_heads}});
  }
  return state;
}

MixerCost LinearCost(const ModelConfig& layer, int64_t n, bool) {
  const int64_t width = Width(layer);
  const int64_t step = 4 * width * layer.d_value + 3 * width;
  return {.sequence_flop = n * step,
          .step_flop = step,
          .step_bytes = 4 * width * (layer.d_value + 1)};
}

std::vector<MixerSpec> LinearMixers() {
  return {{.name = "linear",
           .family = "linear",
           .sections = {"linear"},
           .can = {.cross = true, .recurrent = true},
           .check = CheckLinear,
           .weights = Weights,
           .state = LinearState,
           .cost = LinearCost,
           .reads = LinearReads}};
}

}  // namespace tarn::mixers
