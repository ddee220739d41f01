#include "mixers/common/spec_projections.h"

namespace tarn {

std::vector<NamedShape> ProjectionShapes(const ModelConfig& layer) {
  const int64_t keys = layer.n_heads * layer.d_key;
  const int64_t values = layer.n_heads * layer.d_value;
  const int64_t d_model = layer.d_model;
  return {{"query_projection.weight", {keys, d_model}},
          {"query_projection.bias", {keys}},
          {"key_projection.weight", {keys, d_model}},
          {"key_projection.bias", {keys}},
          {"value_projection.weight", {values, d_model}},
          {"value_projection.bias", {values}},
          {"out_projection.weight", {d_model, values}},
          {"out_projection.bias", {d_model}}};
}

StateSpec KeyValueCacheState(const ModelConfig& layer) {
  return {
      {.name = "keys", .shape = {layer.n_heads, layer.d_key}, .grows = true},
      {.name = "values",
       .shape = {layer.n_heads, layer.d_value},
       .grows = true}};
}

}  // namespace tarn
