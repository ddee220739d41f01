#include "runtime/model/supported.h"

#include "core/text.h"

namespace tarn {
namespace {

Error Unsupported(const char* key, const std::string& wanted,
                  const char* given) {
  return FormatError(StrCat("config.json: ", key),
                     wanted + " (what this runtime can run)", given);
}

}  // namespace

std::optional<Error> CheckSupported(const ModelConfig& config) {
  if (config.task == Task::kCtc) {
    return Unsupported("task", "lm, classify, seq2seq or image",
                       Name(config.task));
  }
  if (!config.HasAttention()) {
    return Unsupported("arch", "decoder, encoder or seq2seq",
                       Name(config.arch));
  }
  if (config.attention != AttentionKind::kLinear &&
      config.attention != AttentionKind::kFull) {
    return Unsupported("attention", "linear or full", Name(config.attention));
  }
  if (config.UsesFeatureMap() && !IsElementwise(config.feature_map) &&
      config.feature_map != FeatureMap::kPoly2) {
    return Unsupported("feature_map", "elu1, identity, relu, relu2 or poly2",
                       Name(config.feature_map));
  }
  return std::nullopt;
}

}  // namespace tarn
