#include "runtime/supported.h"

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
  if (config.arch != Arch::kDecoder) {
    return Unsupported("arch", "decoder", Name(config.arch));
  }
  if (config.attention != AttentionKind::kLinear &&
      config.attention != AttentionKind::kFull) {
    return Unsupported("attention", "linear or full", Name(config.attention));
  }
  if (!config.UsesFeatureMap()) return std::nullopt;
  if (config.feature_map != FeatureMap::kElu1 &&
      config.feature_map != FeatureMap::kIdentity) {
    return Unsupported("feature_map", "elu1 or identity",
                       Name(config.feature_map));
  }
  if (config.denominator == Denominator::kSigned) {
    return Unsupported("denominator", "exact, compat or none",
                       Name(config.denominator));
  }
  return std::nullopt;
}

}  // namespace tarn
