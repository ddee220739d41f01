#include "mixers/mamba/spec.h"

#include "core/error.h"
#include "core/text.h"
#include "mixers/mamba/form.h"

namespace tarn::mixers::mamba {
namespace {

constexpr int64_t kMostStates = 128;  // of selective_scan

std::vector<NamedShape> Weights(const ModelConfig& layer) {
  const MambaSizes s = MambaSizesOf(layer);
  std::vector<NamedShape> shapes;
  for (const char* name : {"value_projection", "gate_projection"}) {
    shapes.push_back({StrCat(name, ".weight"), {s.channels, s.d_model}});
    if (s.in_bias) shapes.push_back({StrCat(name, ".bias"), {s.channels}});
  }
  if (s.width > 0) {
    shapes.push_back({"convolution.weight", {s.channels, s.width}});
    shapes.push_back({"convolution.bias", {s.channels}});
  }
  shapes.push_back({"decay_down_projection.weight", {s.rank, s.channels}});
  shapes.push_back({"key_projection.weight", {s.states, s.channels}});
  shapes.push_back({"query_projection.weight", {s.states, s.channels}});
  if (s.selection_norm) {
    shapes.push_back({"decay_down_norm.weight", {s.rank}});
    shapes.push_back({"key_norm.weight", {s.states}});
    shapes.push_back({"query_norm.weight", {s.states}});
  }
  shapes.push_back({"decay_up_projection.weight", {s.channels, s.rank}});
  shapes.push_back({"dt_bias", {s.channels}});
  shapes.push_back({"A_log", {s.channels, s.states}});
  shapes.push_back({"D", {s.channels}});
  shapes.push_back({"out_projection.weight", {s.d_model, s.channels}});
  if (s.out_bias) shapes.push_back({"out_projection.bias", {s.d_model}});
  return shapes;
}

// S, and the inputs of the convolution that the next token still meets.
StateSpec State(const ModelConfig& layer) {
  const MambaSizes s = MambaSizesOf(layer);
  StateSpec state = {{.name = "S", .shape = {s.channels, s.states}}};
  if (s.width > 0) {
    state.push_back({.name = "window", .shape = {s.width - 1, s.channels}});
  }
  return state;
}

// A token makes the decay of each entry (a product and an exponential), decays
// the entry, adds to it and reads it.
MixerCost Cost(const ModelConfig& layer, int64_t n, bool) {
  const int64_t entries = layer.d_key * layer.d_value;
  const int64_t step = 7 * entries;
  return {
      .sequence_flop = n * step, .step_flop = step, .step_bytes = 4 * entries};
}

void Check(const ModelConfig& layer) {
  if (layer.d_key > kMostStates) {
    throw ArgumentError(
        "d_key", StrCat("at most ", kMostStates, " for attention 'mamba1'"),
        StrCat(layer.d_key));
  }
  if (KeyOf<int64_t>(layer, "conv_width") == 1) {
    throw ArgumentError("conv_width",
                        "0, or from 2 to 8 for attention 'mamba1'", "1");
  }
}

std::vector<OwnKey> MambaKeys() {
  return {{.name = "selection_norm",
           .help = "root mean square norms of what 'mamba1' makes of a token: "
                   "low-rank steps, keys and queries",
           .type = FlagKey{},
           .section = "mamba1"},
          {.name = "selection_norm_eps",
           .help = "eps of these norms; 0: norm_eps",
           .type = RealKey{0.0, 1.0, 0.0},
           .section = "mamba1"}};
}

}  // namespace

std::vector<MixerSpec> Mixers() {
  return {{.name = "mamba1",
           .family = "mamba",
           .sections = {"short_convolution", "gates"},
           .optional_sections = {"recurrent_bias", "mamba1"},
           .can = {.bidirectional = false,
                   .recurrent = true,
                   .rotary = false,
                   .without_rotary = true},
           .check = Check,
           .weights = Weights,
           // Steps, and the keys and queries that stand in one matrix with
           // them: few rows.
           .precise = {{"decay_down_projection.weight", Precision::kFloat},
                       {"decay_up_projection.weight", Precision::kFloat},
                       {"key_projection.weight", Precision::kFloat},
                       {"query_projection.weight", Precision::kFloat}},
           .state = State,
           .cost = Cost,
           .keys = MambaKeys(),
           .place = 7}};
}

}  // namespace tarn::mixers::mamba
