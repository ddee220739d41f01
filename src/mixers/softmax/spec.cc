#include "mixers/softmax/spec.h"

#include "core/error.h"
#include "mixers/common/projections.h"
#include "mixers/linear/spec.h"

namespace tarn::mixers {
namespace {

void CheckLocal(const ModelConfig& layer) {
  if (layer.local_context == 0) {
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

std::vector<MixerSpec> SoftmaxMixers() {
  const MixerSpec full = {
      .name = "full",
      .family = "softmax",
      .sections = {"softmax"},
      .can = {.cross = true, .recurrent = true, .dropout = true},
      .weights = ProjectionShapes,
      .state = KeyValueCacheState,
      .cost = SoftmaxCost,
      .reads = DropoutAnd({})};
  MixerSpec local = full;
  local.name = "local";
  local.can.cross = false;
  local.check = CheckLocal;
  local.state = LocalState;
  local.cost = nullptr;
  local.reads = DropoutAnd({"local_context"});
  MixerSpec topk = full;
  topk.name = "exact-topk";
  topk.can.cross = false;
  topk.cost = nullptr;
  topk.reads = DropoutAnd({"topk"});
  return {full, local, topk};
}

std::vector<MixerSpec> ConditionalMixers() {
  return {{.name = "conditional-full",
           .family = "softmax",
           .sections = {"softmax", "linear"},
           .can = {.dropout = true},
           .check = CheckLinear,
           .weights = ConditionalWeights,
           .reads = [](const ModelConfig& layer) {
             std::vector<const char*> keys = LinearReads(layer);
             keys.insert(keys.end(), {"attention_dropout", "length_limit"});
             return keys;
           }}};
}

}  // namespace tarn::mixers
