#include "mixers/softmax/spec.h"

#include "config/bounds.h"
#include "core/error.h"
#include "mixers/common/spec_projections.h"
#include "mixers/linear/spec.h"

namespace tarn::mixers {
namespace {

void CheckLocal(const ModelConfig& layer) {
  if (KeyOf<int64_t>(layer, "local_context") == 0) {
    throw ArgumentError("local_context", "1 or more for attention 'local'",
                        "0");
  }
}

StateSpec LocalState(const ModelConfig& layer) {
  StateSpec state = KeyValueCacheState(layer);
  for (StateTensor& tensor : state) tensor.kept = LocalSlots(layer);
  return state;
}

std::vector<NamedShape> ConditionalWeights(const ModelConfig& layer) {
  std::vector<NamedShape> shapes = ProjectionShapes(layer);
  for (NamedShape& omega :
       OmegaShapes(layer, "inner_attention.other_attention.")) {
    shapes.push_back(std::move(omega));
  }
  return shapes;
}

std::vector<OwnKey> Keys() {
  return {{.name = "attention_dropout",
           .help = "fraction of attention weights dropped; 0 without softmax "
                   "layers",
           .type = RealKey{0.0, kBelowOne, 0.0},
           .after = "dropout",
           .strict = true,
           .training = true},
          {.name = "local_context",
           .help = "keys that a query of 'local' sees",
           .type = IntegerKey{0, kMaxPositions, 0},
           .after = "cross_attention"},
          {.name = "topk",
           .help = "keys kept by 'exact-topk' and the improved clustered mixers",
           .type = IntegerKey{1, kMaxCount, 32},
           .after = "cross_attention"},
          {.name = "length_limit",
           .help = "'conditional-full' is full up to this length, then linear",
           .type = IntegerKey{1, kMaxPositions, 512},
           .after = "cross_attention"}};
}

// What all mixers of this family read, and `more`.
std::function<std::vector<const char*>(const ModelConfig&)> DropoutAnd(
    std::vector<const char*> more) {
  more.push_back("attention_dropout");
  return [more = std::move(more)](const ModelConfig&) { return more; };
}

}  // namespace

MixerCost SoftmaxCost(const ModelConfig& layer, int64_t n, bool causal) {
  // Twice the pairs of a query and a key it sees, times their widths.
  const int64_t width = layer.d_key + layer.d_value;
  const int64_t pairs_twice = causal ? n * (n + 1) : 2 * n * n;
  return {.sequence_flop = pairs_twice * width,
          .step_flop = 2 * (n + 1) * width,
          .step_bytes = 4 * n * width};
}

namespace softmax {

std::vector<MixerSpec> Mixers() {
  const MixerSpec full = {
      .name = "full",
      .family = "softmax",
      .sections = {"softmax"},
      .can = {.cross = true,
              .cross_for_others = true,
              .recurrent = true,
              .dropout = true,
              .pairs = true},
      .weights = ProjectionShapes,
      .state = KeyValueCacheState,
      .cost = SoftmaxCost,
      .keys = Keys(),
      .reads = DropoutAnd({}),
      .place = 1};
  MixerSpec local = full;
  local.name = "local";
  local.can = {.recurrent = true, .dropout = true};
  local.keys = {};
  local.check = CheckLocal;
  local.state = LocalState;
  local.cost = nullptr;
  local.reads = DropoutAnd({"local_context"});
  MixerSpec topk = local;
  topk.name = "exact-topk";
  topk.check = nullptr;
  topk.state = full.state;
  topk.reads = DropoutAnd({"topk"});
  // Full up to length_limit tokens, then linear.
  const MixerSpec conditional = {
      .name = "conditional-full",
      .family = "softmax",
      .sections = {"softmax", "linear"},
      .can = {.dropout = true},
      .check = CheckLinear,
      .weights = ConditionalWeights,
      .reads =
          [](const ModelConfig& layer) {
            std::vector<const char*> keys = LinearReads(layer);
            keys.insert(keys.end(), {"attention_dropout", "length_limit"});
            return keys;
          },
      .derive = DeriveLinear,
      .place = 1};
  return {full, local, topk, conditional, GatedSoftmaxMixer()};
}

}  // namespace softmax

}  // namespace tarn::mixers
