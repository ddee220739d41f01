#include "mixers/mlstm/spec.h"

#include "mixers/mlstm/form.h"

namespace tarn::mixers::mlstm {
namespace {

std::vector<NamedShape> Weights(const ModelConfig& layer) {
  const MlstmSizes s = MlstmSizesOf(layer);
  return {{"query_projection.weight", {s.keys(), s.d_model}},
          {"key_projection.weight", {s.keys(), s.d_model}},
          {"value_projection.weight", {s.values(), s.d_model}},
          {"gate_projection.weight", {s.values(), s.d_model}},
          {"input_projection.weight", {s.heads, s.d_model}},
          {"input_projection.bias", {s.heads}},
          {"forget_projection.weight", {s.heads, s.d_model}},
          {"forget_projection.bias", {s.heads}},
          {"norm.weight", {s.values()}},
          {"out_projection.weight", {s.d_model, s.values()}}};
}

// C with n as its last column, and m.
StateSpec State(const ModelConfig& layer) {
  const MlstmSizes s = MlstmSizesOf(layer);
  return {{.name = "S", .shape = {s.heads, s.d_key, s.columns()}},
          {.name = "m", .shape = {s.heads}}};
}

// A token decays C and n, adds to them and reads them.
MixerCost Cost(const ModelConfig& layer, int64_t n, bool) {
  const int64_t entries = layer.d_key * (layer.d_value + 1);
  const int64_t step = 5 * entries;
  return {
      .sequence_flop = n * step, .step_flop = step, .step_bytes = 4 * entries};
}

}  // namespace

std::vector<MixerSpec> Mixers() {
  constexpr double kMostCap = 1e6, kCap = 15.0;  // xLSTM-7B's
  return {{.name = "mlstm",
           .family = "mlstm",
           .sections = {"mlstm"},
           .can = {.bidirectional = false,
                   .recurrent = true,
                   .rotary = false,
                   .without_rotary = true},
           .weights = Weights,
           .precise = {{"input_projection.weight", Precision::kFloat},
                       {"forget_projection.weight", Precision::kFloat}},
           .state = State,
           .cost = Cost,
           .keys = {{.name = "gate_softcap",
                     .help = "mlstm: its gates lie between this and its "
                             "negative; 0: no limit",
                     .type = RealKey{0.0, kMostCap, kCap}}},
           .place = 10}};
}

}  // namespace tarn::mixers::mlstm
