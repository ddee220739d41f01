#include "mixers/linear/spec.h"

#include "config/bounds.h"
#include "core/error.h"
#include "core/text.h"
#include "mixers/common/spec_projections.h"
#include "mixers/linear/form.h"

namespace tarn::mixers {
namespace {

int64_t Width(const ModelConfig& layer) {
  return LinearKeys(layer).Width(layer.d_key);
}

std::vector<OwnKey> Keys() {
  WordKey maps;
  for (const FeatureMapTraits& map : kFeatureMaps)
    maps.words.push_back(map.name);
  maps.value = static_cast<int64_t>(FeatureMap::kElu1);
  WordKey denominators;
  for (const Denominator one : {Denominator::kExact, Denominator::kCompat,
                                Denominator::kNone, Denominator::kSigned}) {
    denominators.words.push_back(Name(one));
  }
  return {{.name = "feature_map",
           .help = "map of queries and keys in linear attention",
           .type = maps,
           .after = "attention"},
          {.name = "denominator",
           .help = "how linear attention normalises its sums",
           .type = denominators,
           .after = "attention"},
          {.name = "eps",
           .help = "added to the denominator by 'compat'",
           .type = RealKey{kMinEps, 1.0, 1e-6},
           .after = "attention"},
          {.name = "n_dims",
           .help = "requested width of a random feature map; 0: d_key",
           .type = IntegerKey{0, kMaxWidth, 0},
           .before = "bidirectional"},
          {.name = "stabilise",
           .help = "favor maps carry a running maximum",
           .type = FlagKey{},
           .before = "bidirectional"},
          {.name = "redraw",
           .help = "updates between two draws of random features; 0: never",
           .type = IntegerKey{0, kMaxCount, 1},
           .before = "bidirectional"},
          {.name = "feature_seed",
           .help = "seed of the random features",
           .type = IntegerKey{0, INT64_MAX, 0},
           .before = "bidirectional"}};
}

std::vector<NamedShape> Weights(const ModelConfig& layer) {
  std::vector<NamedShape> shapes = ProjectionShapes(layer);
  for (NamedShape& omega : OmegaShapes(layer, "inner_attention.")) {
    shapes.push_back(std::move(omega));
  }
  return shapes;
}

}  // namespace

void DeriveLinear(ModelConfig& config) {
  const LinearKeys keys(config);
  if (keys.n_dims == 0 && UsesOmega(keys.feature_map)) {
    SetKey(config, "n_dims", config.d_key);
  }
  // Sums of signed features may come near 0 with either sign.
  if (keys.denominator == Denominator::kExact &&
      Traits(keys.feature_map).is_signed) {
    SetKey(config, "denominator", Denominator::kSigned);
  }
}

void CheckLinear(const ModelConfig& layer) {
  const LinearKeys own(layer);
  const FeatureMapTraits& row = Traits(own.feature_map);
  const std::string named = StrCat(" for feature_map '", row.name, "'");
  if (own.stabilise && !row.can_stabilise) {
    throw ArgumentError("stabilise", "false" + named, "true");
  }
  if (own.stabilise && own.denominator != Denominator::kExact) {
    throw ArgumentError("denominator", "exact with stabilise",
                        Name(own.denominator));
  }
  const int64_t least = row.features_per_column > 1
                            ? row.features_per_column + row.constant_features
                            : 0;
  if (own.n_dims < least) {
    throw ArgumentError("n_dims", StrCat(least, " or more", named),
                        StrCat(own.n_dims));
  }
  // The numerator uses rotated features, which the kernels compute for single
  // entries only.
  if (layer.positions == Positions::kRotary &&
      layer.rotary_place == RotaryPlace::kAfter &&
      (!row.elementwise || own.denominator == Denominator::kSigned)) {
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
  const LinearKeys own(layer);
  std::vector<const char*> keys = {"feature_map", "denominator",
                                   "rotary_place"};
  if (own.denominator == Denominator::kCompat) keys.push_back("eps");
  if (Traits(own.feature_map).can_stabilise) keys.push_back("stabilise");
  if (UsesOmega(own.feature_map)) {
    keys.insert(keys.end(), {"n_dims", "redraw", "feature_seed"});
  }
  return keys;
}

std::vector<NamedShape> OmegaShapes(const ModelConfig& layer,
                                    const std::string& prefix) {
  const LinearKeys own(layer);
  const int64_t columns = OmegaColumns(own.feature_map, own.n_dims);
  if (columns == 0) return {};
  return {{prefix + "feature_map.omega", {layer.d_key, columns}}};
}

StateSpec LinearState(const ModelConfig& layer) {
  const int64_t width = Width(layer);
  StateSpec state = {
      {.name = "S", .shape = {layer.n_heads, width, layer.d_value}},
      {.name = "z", .shape = {layer.n_heads, width}}};
  if (KeyOf<Denominator>(layer, "denominator") == Denominator::kSigned) {
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

namespace linear {

std::vector<MixerSpec> Mixers() {
  return {{.name = "linear",
           .family = "linear",
           .sections = {"linear"},
           .can = {.cross = true, .recurrent = true},
           .check = CheckLinear,
           .weights = Weights,
           .state = LinearState,
           .cost = LinearCost,
           .keys = Keys(),
           .reads = LinearReads,
           .derive = DeriveLinear,
           .place = 0}};
}

}  // namespace linear

}  // namespace tarn::mixers
