#include "mixers/rwkv/spec.h"

#include "config/bounds.h"
#include "core/error.h"
#include "core/text.h"
#include "mixers/common/form_output_norm.h"
#include "mixers/rwkv/form.h"

namespace tarn::mixers::rwkv {
namespace {

std::vector<NamedShape> Weights(const ModelConfig& layer) {
  const RwkvSizes s = RwkvSizesOf(layer);
  const int64_t d = s.d_model, w = s.width;
  std::vector<NamedShape> shapes = {{"token_shift", {s.inputs, d}}};
  const auto add = [&](const char* name, std::vector<int64_t> shape) {
    shapes.push_back({name, std::move(shape)});
  };
  if (!s.seven) {
    add("shift_base", {d});
    add("shift_down_projection.weight", {s.inputs * s.shift_rank, d});
    add("shift_up_projection.weight", {s.inputs * d, s.shift_rank});
  }
  add("query_projection.weight", {w, d});
  add("key_projection.weight", {w, d});
  add("value_projection.weight", {w, d});
  add("decay_down_projection.weight", {s.rank, d});
  add("decay_up_projection.weight", {w, s.rank});
  add("decay_up_projection.bias", {w});
  if (s.seven) {
    add("rate_down_projection.weight", {s.rate_rank, d});
    add("rate_up_projection.weight", {w, s.rate_rank});
    add("rate_up_projection.bias", {w});
    if (s.reads_values) {
      add("value_down_projection.weight", {s.value_rank, d});
      add("value_up_projection.weight", {w, s.value_rank});
      add("value_up_projection.bias", {w});
    }
    add("gate_down_projection.weight", {s.gate_rank, d});
    add("gate_up_projection.weight", {w, s.gate_rank});
    add("key_scale", {w});
    add("key_rate", {w});
  } else {
    add("gate_projection.weight", {w, d});
  }
  add("bonus", {s.heads, s.d_key});
  add("norm.weight", {w});
  add("norm.bias", {w});
  add("out_projection.weight", {d, w});
  return shapes;
}

// S, and the row before the next token's.
StateSpec State(const ModelConfig& layer) {
  const RwkvSizes s = RwkvSizesOf(layer);
  return {{.name = "S", .shape = {s.heads, s.d_key, s.d_key}},
          {.name = "shift", .shape = {s.d_model}}};
}

// A token decays S, reads it and adds to it; RWKV-7 also reads what it turns.
MixerCost Cost(const ModelConfig& layer, int64_t n, bool) {
  const int64_t entries = layer.d_key * layer.d_key;
  const int64_t step = entries * (RwkvSizesOf(layer).seven ? 9 : 5);
  return {
      .sequence_flop = n * step, .step_flop = step, .step_bytes = 4 * entries};
}

void Check(const ModelConfig& layer) {
  if (layer.d_key == layer.d_value) return;
  throw ArgumentError("d_value",
                      StrCat("d_key = ", layer.d_key, " for attention '",
                             Name(layer.attention), "'"),
                      StrCat(layer.d_value));
}

// All maps of low rank: shifts, decays, rates, shares of values, gates.
std::vector<NamedPrecision> Precise() {
  std::vector<NamedPrecision> all;
  for (const char* map : {"shift", "decay", "rate", "value", "gate"}) {
    for (const char* end : {"_down", "_up"}) {
      all.emplace_back(StrCat(map, end, "_projection.weight"),
                       Precision::kFloat);
    }
  }
  return all;
}

OwnKey Rank(const char* name, const char* help, const char* section) {
  return {.name = name,
          .help = help,
          .type = IntegerKey{0, kMaxWidth, 0},
          .section = section};
}

}  // namespace

std::vector<MixerSpec> Mixers() {
  MixerSpec six = {.name = "rwkv6",
                   .family = "rwkv",
                   .sections = {"gates"},
                   .optional_sections = {kOutputNormSection, "rwkv6"},
                   .can = {.bidirectional = false,
                           .recurrent = true,
                           .rotary = false,
                           .without_rotary = true},
                   .check = Check,
                   .weights = Weights,
                   .precise = Precise(),
                   .state = State,
                   .cost = Cost,
                   .place = 5};
  MixerSpec seven = six;
  six.keys = {Rank("shift_rank",
                   "rank of the shifts of 'rwkv6'; 0: gate_rank's", "rwkv6")};
  seven.name = "rwkv7";
  seven.optional_sections = {kOutputNormSection, "rwkv", "rwkv7"};
  seven.passed = [](const ModelConfig& layer) {
    const RwkvSizes s = RwkvSizesOf(layer);
    return s.passes_values ? s.width : 0;
  };
  seven.keys = {
      {.name = "value_residual",
       .help = "layers of 'rwkv7' after the first add a share of its "
               "values to theirs",
       .type = FlagKey{false}},
      Rank("rate_rank", "rank of the rates; 0: gate_rank's", "rwkv7"),
      Rank("output_gate_rank", "rank of the output gate; 0: twice gate_rank's",
           "rwkv7"),
      Rank("value_rank", "rank of value_residual's share; 0: half of gate_rank",
           "rwkv7"),
      {.name = "unit_eps",
       .help = "what is added to the squared length of a key that is "
               "removed",
       .type = RealKey{1e-30, 1.0, 1e-6},
       .section = "rwkv7"}};
  return {six, seven};
}

}  // namespace tarn::mixers::rwkv
