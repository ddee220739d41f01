#include "mixers/softmax/spec.h"

#include "core/error.h"
#include "mixers/common/spec_projections.h"
#include "mixers/linear/spec.h"
#include "mixers/softmax/form.h"
#include "mixers/softmax/spec_form.h"

namespace tarn::mixers {
namespace {

void CheckLocal(const ModelConfig& layer) {
  if (KeyOf<int64_t>(layer, "local_context") == 0) {
    throw ArgumentError("local_context", "1 or more for attention 'local'",
                        "0");
  }
  CheckSoftmaxForm(layer);
}

std::vector<NamedShape> ConditionalWeights(const ModelConfig& layer) {
  std::vector<NamedShape> shapes = ProjectionShapes(layer);
  for (NamedShape& omega :
       OmegaShapes(layer, "inner_attention.other_attention.")) {
    shapes.push_back(std::move(omega));
  }
  return shapes;
}

// Full up to length_limit tokens, then linear.
MixerSpec Conditional() {
  return {.name = "conditional-full",
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
}

MixerSpec Gated(const MixerSpec& full) {
  MixerSpec gated = full;
  gated.name = kGatedSoftmax;
  gated.sections = {"grouping", "gated_softmax"};
  gated.optional_sections = {"softmax_form"};
  gated.can = {.bidirectional = false, .recurrent = true};
  gated.keys = GatedSoftmaxKeys();
  gated.place = 6;
  return gated;
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
      .optional_sections = {"softmax_form", "grouping", "gated_softmax"},
      .can = {.cross = true,
              .cross_for_others = true,
              .recurrent = true,
              .dropout = true,
              .pairs = true},
      .check = CheckSoftmaxForm,
      .weights = SoftmaxFormWeights,
      .state = SoftmaxFormState,
      .cost = SoftmaxFormCost,
      .keys = SoftmaxKeys(),
      .reads = SoftmaxFormReads,
      .rotary_key = "rotary_width",
      .rotate_key = kRotateKey,
      .rotary_base_key = kRotaryBaseKey,
      .place = 1};
  MixerSpec local = full;
  local.name = "local";
  local.can = {.recurrent = true, .dropout = true};
  local.keys = {};
  local.check = CheckLocal;
  local.cost = nullptr;
  MixerSpec topk = local;
  topk.name = "exact-topk";
  topk.optional_sections = {};
  topk.check = nullptr;
  topk.weights = ProjectionShapes;
  topk.state = KeyValueCacheState;
  topk.reads = [](const ModelConfig&) {
    return std::vector<const char*>{"topk", "attention_dropout"};
  };
  topk.rotary_key = topk.rotate_key = topk.rotary_base_key = nullptr;
  return {full, local, topk, Conditional(), Gated(full)};
}

}  // namespace softmax

}  // namespace tarn::mixers
