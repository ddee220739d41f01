#include "mixers/aft/spec.h"

#include <limits>
#include <string>

#include "core/error.h"
#include "core/text.h"
#include "mixers/common/projections.h"

namespace tarn::mixers {
namespace {

// Keys weigh values channel by channel, so both have one width.
void Check(const ModelConfig& layer) {
  if (layer.d_key == layer.d_value) return;
  throw ArgumentError("d_value",
                      StrCat("d_key = ", layer.d_key, " for attention '",
                             Name(layer.attention), "'"),
                      StrCat(layer.d_value));
}

std::vector<NamedShape> FullWeights(const ModelConfig& layer) {
  std::vector<NamedShape> shapes = ProjectionShapes(layer);
  for (const char* table : {"u", "v"}) {
    shapes.push_back({StrCat("inner_attention.", table),
                      {layer.max_sequence_length, layer.aft_parameterization}});
  }
  return shapes;
}

// Per channel: the running maximum of the keys and the sums below it.
StateSpec SimpleState(const ModelConfig& layer) {
  const std::vector<int64_t> channels = {layer.n_heads, layer.d_value};
  return {{.name = "m",
           .shape = channels,
           .initial = -std::numeric_limits<float>::infinity()},
          {.name = "a", .shape = channels},
          {.name = "b", .shape = channels}};
}

}  // namespace

std::vector<MixerSpec> AftMixers() {
  const MixerSpec full = {.name = "aft-full",
                          .family = "aft",
                          .sections = {"aft"},
                          .can = {.recurrent = true, .rotary = false,
                                  .position_table = true},
                          .check = Check,
                          .weights = FullWeights,
                          .state = KeyValueCacheState};
  MixerSpec simple = full;
  simple.name = "aft-simple";
  simple.can.position_table = false;
  simple.weights = ProjectionShapes;
  simple.state = SimpleState;
  simple.reads = [](const ModelConfig&) {
    return std::vector<const char*>{};
  };
  return {full, simple};
}

}  // namespace tarn::mixers
