#include "mixers/lru/spec.h"

#include "core/error.h"
#include "mixers/lru/form.h"

namespace tarn::mixers::lru {
namespace {

std::vector<NamedShape> Weights(const ModelConfig& layer) {
  const LruSizes s = LruSizesOf(layer);
  std::vector<NamedShape> shapes = {
      {"value_projection.weight", {s.channels, s.d_model}},
      {"value_projection.bias", {s.channels}},
      {"gate_projection.weight", {s.channels, s.d_model}},
      {"gate_projection.bias", {s.channels}}};
  if (s.width > 0) {
    shapes.push_back({"convolution.weight", {s.channels, s.width}});
    shapes.push_back({"convolution.bias", {s.channels}});
  }
  shapes.push_back({"input_gate.weight", {s.heads, s.block, s.block}});
  shapes.push_back({"input_gate.bias", {s.channels}});
  shapes.push_back({"recurrence_gate.weight", {s.heads, s.block, s.block}});
  shapes.push_back({"recurrence_gate.bias", {s.channels}});
  shapes.push_back({"Lambda", {s.channels}});
  shapes.push_back({"out_projection.weight", {s.d_model, s.channels}});
  shapes.push_back({"out_projection.bias", {s.d_model}});
  return shapes;
}

// h, and the inputs of the convolution that the next token still meets.
StateSpec State(const ModelConfig& layer) {
  const LruSizes s = LruSizesOf(layer);
  StateSpec state = {{.name = "h", .shape = {s.channels}}};
  if (s.width > 0) {
    state.push_back({.name = "window", .shape = {s.width - 1, s.channels}});
  }
  return state;
}

// A channel of a token decays its state, adds to it and makes both factors.
MixerCost Cost(const ModelConfig& layer, int64_t n, bool) {
  const int64_t step = 8 * layer.d_value;
  return {.sequence_flop = n * step,
          .step_flop = step,
          .step_bytes = 4 * layer.d_value};
}

void Check(const ModelConfig& layer) {
  if (KeyOf<int64_t>(layer, "conv_width") == 1) {
    throw ArgumentError("conv_width",
                        "0, or from 2 to 8 for attention 'rg-lru'", "1");
  }
}

}  // namespace

std::vector<MixerSpec> Mixers() {
  return {{.name = "rg-lru",
           .family = "lru",
           .sections = {"short_convolution"},
           .can = {.bidirectional = false,
                   .recurrent = true,
                   .rotary = false,
                   .without_rotary = true},
           .check = Check,
           .weights = Weights,
           .precise = {{"input_gate.weight", Precision::kFloat},
                       {"recurrence_gate.weight", Precision::kFloat}},
           .state = State,
           .cost = Cost,
           .place = 9}};
}

}  // namespace tarn::mixers::lru
