#include "mixers/aft/spec.h"

#include <limits>
#include <string>

#include "config/bounds.h"
#include "core/error.h"
#include "core/text.h"
#include "mixers/common/spec_projections.h"

namespace tarn::mixers::aft {
namespace {

constexpr const char* kRows = "max_sequence_length";

std::vector<OwnKey> Keys() {
  std::vector<OwnKey> keys = {
      {.name = kRows,
       .help = "rows of the position tables of 'aft-full'",
       .type = IntegerKey{1, kMaxPositions, 1024}},
      {.name = "aft_parameterization",
       .help = "columns of the position tables of 'aft-full'",
       .type = IntegerKey{1, kMaxWidth, 64}}};
  for (OwnKey& key : keys) key.after = "cross_attention";
  return keys;
}

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
                      {KeyOf<int64_t>(layer, kRows),
                       KeyOf<int64_t>(layer, "aft_parameterization")}});
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

std::vector<MixerSpec> Mixers() {
  const MixerSpec full = {.name = "aft-full",
                          .family = "aft",
                          .sections = {"aft"},
                          .can = {.recurrent = true, .rotary = false},
                          .check = Check,
                          .weights = FullWeights,
                          .state = KeyValueCacheState,
                          .keys = Keys(),
                          .positions_key = kRows,
                          .place = 3};
  MixerSpec simple = full;
  simple.name = "aft-simple";
  simple.keys = {};
  simple.positions_key = nullptr;
  simple.weights = ProjectionShapes;
  simple.state = SimpleState;
  simple.reads = [](const ModelConfig&) { return std::vector<const char*>{}; };
  return {full, simple};
}

}  // namespace tarn::mixers::aft
