// Linear attention with an output norm as flash-linear-attention has it.
#include "config/fields.h"
#include "core/text.h"
#include "importers/flash/flash_linear.h"

namespace tarn {
namespace {

// Words of qk_map and of feature_map.
constexpr std::pair<const char*, const char*> kMaps[] = {
    {"elu1", "elu"},  {"identity", "identity"},
    {"relu", "relu"}, {"hadamard", "elementwise_product"},
    {"t2r", "t2r"},   {"hedgehog", "hedgehog"},
    {"dpfp", "dpfp"}};

void ReadMap(PublishedConfig& from, ModelConfig& config) {
  const std::string given = from.Word("feature_map", "elementwise_product");
  std::string known;
  for (const auto& [own, theirs] : kMaps) {
    if (given == theirs) return SetConfigField(config, "qk_map", own);
    known += StrCat(known.empty() ? "" : ", ", theirs);
  }
  from.Refuse("feature_map", "one of " + known, Quoted(given));
}

// Queries and keys that share a map have the same one twice.
ModelConfig ReadNormLinear(PublishedConfig& from) {
  ModelConfig config = ReadFlashGated(from, "norm-linear", 4);
  ReadFlashSharedHeads(from, 4, 1.0, 1.0, config);
  ReadMap(from, config);
  from.Flag("tie_feature_map_qk", false);
  SetKey(config, "unit_queries", from.Flag("norm_q", false));
  SetKey(config, "unit_keys", from.Flag("norm_k", false));
  SetKey(config, "divided_sums", from.Flag("norm_feature_map", false));
  from.Flag("elementwise_affine", true);
  ReadFlashSoftmax(from, config);
  return config;
}

void PublishNormLinear(const ModelConfig& config, PublishedKeys& to) {
  const ModelConfig view = FlashView(config);
  PublishFlashStack(config, to);
  PublishFlashHeads(view, to);
  to["feature_map"] = kMaps[KeyOf<size_t>(view, "qk_map")].second;
  to["norm_q"] = KeyOf<bool>(view, "unit_queries");
  to["norm_k"] = KeyOf<bool>(view, "unit_keys");
  to["norm_feature_map"] = KeyOf<bool>(view, "divided_sums");
}

}  // namespace

std::vector<Importer> FlashNormLinearImporters() {
  return {{"linear_attn", ReadNormLinear, FlashGatedTensors,
           "LinearAttentionForCausalLM", PublishNormLinear}};
}

}  // namespace tarn
