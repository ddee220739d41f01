#include "config/bounds.h"
#include "core/error.h"
#include "core/text.h"
#include "mixers/softmax/form.h"
#include "mixers/softmax/spec.h"

namespace tarn::mixers {
namespace {

std::vector<NamedShape> Weights(const ModelConfig& layer) {
  const GatedSoftmaxSizes s(layer);
  std::vector<NamedShape> shapes = {
      {"query_projection.weight", {s.queries(), s.d_model}},
      {"key_projection.weight", {s.keys(), s.d_model}},
      {"value_projection.weight", {s.values(), s.d_model}}};
  if (s.gated) {
    shapes.push_back({"gate_projection.weight", {s.outputs(), s.d_model}});
  }
  if (s.normed) {
    shapes.push_back({"query_norm.weight", {s.d_key}});
    shapes.push_back({"key_norm.weight", {s.d_key}});
  }
  shapes.push_back({"out_projection.weight", {s.d_model, s.outputs()}});
  return shapes;
}

StateSpec State(const ModelConfig& layer) {
  const GatedSoftmaxSizes s(layer);
  return {
      {.name = "keys", .shape = {s.key_heads, s.d_key}, .grows = true},
      {.name = "values", .shape = {s.key_heads, s.d_value}, .grows = true}};
}

// A head's share of the keys and values that its group reads.
MixerCost Cost(const ModelConfig& layer, int64_t n, bool causal) {
  MixerCost cost = SoftmaxCost(layer, n, causal);
  cost.step_bytes /= GatedSoftmaxSizes(layer).group();
  return cost;
}

void Check(const ModelConfig& layer) {
  const std::string named = StrCat(" for attention '", kGatedSoftmax, "'");
  const int64_t key_heads = KeyOf<int64_t>(layer, "key_heads");
  const int64_t rotary_width = KeyOf<int64_t>(layer, "rotary_width");
  if (key_heads > 0 && layer.n_heads % key_heads != 0) {
    throw ArgumentError(
        "key_heads",
        StrCat("0 or a divisor of n_heads = ", layer.n_heads, named),
        StrCat(key_heads));
  }
  if (rotary_width > layer.d_key || rotary_width % 2 != 0) {
    throw ArgumentError(
        "rotary_width",
        StrCat("an even width up to d_key = ", layer.d_key, named),
        StrCat(rotary_width));
  }
}

std::vector<OwnKey> Keys() {
  std::vector<OwnKey> keys = {
      {.name = "rotary_width",
       .help = "channels that 'gated-full' rotates; 0: d_key",
       .type = IntegerKey{0, kMaxWidth, 0}},
      {.name = "output_gate",
       .help = "sigmoid gates multiply the values of 'gated-full'",
       .type = FlagKey{true}},
      {.name = "query_key_norm",
       .help = "'gated-full' normalises queries and keys",
       .type = FlagKey{true}}};
  for (OwnKey& key : keys) key.section = "gated_softmax";
  return keys;
}

}  // namespace

MixerSpec GatedSoftmaxMixer() {
  return {.name = kGatedSoftmax,
           .family = "softmax",
           .sections = {"grouping", "gated_softmax"},
           .can = {.bidirectional = false, .recurrent = true},
           .check = Check,
           .weights = Weights,
           .state = State,
           .cost = Cost,
           .keys = Keys(),
           .reads = [](const ModelConfig& layer) {
             std::vector<const char*> keys = {"key_heads", "output_gate",
                                              "query_key_norm"};
             if (layer.positions == Positions::kRotary) {
               keys.push_back("rotary_width");
             }
             return keys;
           },
           .rotary_key = "rotary_width",
           .place = 6};
}

}  // namespace tarn::mixers
