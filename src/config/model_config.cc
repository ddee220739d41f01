#include "config/model_config.h"

#include <algorithm>

#include "config/fields.h"
#include "core/text.h"

namespace tarn {
namespace {

void CheckRanges(const ModelConfig& config) {
  for (const ConfigField& field : ConfigFields()) {
    if (InRange(field, config)) continue;
    // An enum outside its words has no text of its own.
    const bool choice = std::holds_alternative<ChoiceField>(field.kind);
    RefuseKey(field.name, Wanted(field, false),
              choice ? "a value outside the enum" : ValueText(field, config));
  }
}

void DeriveHeads(ModelConfig& config) {
  if (config.d_key == 0 || config.d_value == 0) {
    if (config.d_model % config.n_heads != 0 && config.HasAttention()) {
      RefuseKey("n_heads",
                StrCat("a divisor of d_model = ", config.d_model,
                       " (or d_key and d_value given)"),
                StrCat(config.n_heads));
    }
    // A model without heads does not use it, but it is a size of the file.
    const int64_t width = std::max<int64_t>(1, config.d_model / config.n_heads);
    if (config.d_key == 0) config.d_key = width;
    if (config.d_value == 0) config.d_value = width;
  }
  if (config.d_ff == 0) config.d_ff = 4 * config.d_model;
}

void DeriveTask(ModelConfig& config) {
  if (config.task == Task::kDerived) {
    config.task = config.arch == Arch::kEncoder   ? Task::kClassify
                  : config.arch == Arch::kSeq2seq ? Task::kSeq2seq
                                                  : Task::kLm;
  }
  if (config.cross_attention == CrossAttention::kDerived) {
    const std::vector<AttentionKind> kinds = MixersOf(config);
    const bool linear = kinds == std::vector{AttentionKind::kLinear};
    config.cross_attention =
        linear || !config.HasAttention() ? CrossAttention::kLinear
                                         : CrossAttention::kFull;
  }
  if (config.arch == Arch::kSeq2seq && config.n_decoder_layers == 0) {
    config.n_decoder_layers = config.n_layers;
  }
  constexpr int64_t kMixtures = 10;  // as in the paper's image models
  if (config.task == Task::kImage && config.n_mixtures == 0) {
    config.n_mixtures = kMixtures;
  }
}

// A key that no part of the model reads gets its default, so that files that
// leave it out are complete.
void ResetUnread(ModelConfig& config) {
  const ModelConfig defaults;
  for (const ConfigField& field : ConfigFields()) {
    // A wrong size of an image is refused, not corrected.
    if (std::string_view(field.section) == "image") continue;
    if (!ReadsSection(config, field.section)) CopyField(field, defaults, config);
  }
}

}  // namespace

bool ReadsSection(const ModelConfig& finished, std::string_view section) {
  if (section == "model") return true;
  if (section == "image") return finished.task == Task::kImage;
  if (section == "recurrent") {
    return finished.arch == Arch::kRnn || finished.arch == Arch::kLstm;
  }
  if (section == "convolution") return finished.arch == Arch::kCnn;
  if (!finished.HasAttention()) return false;
  for (const char* common : {"layers", "positions", "norm", "feed_forward"}) {
    if (section == common) return true;
  }
  std::vector<AttentionKind> kinds = MixersOf(finished);
  if (finished.arch == Arch::kSeq2seq) {
    kinds.push_back(CrossView(finished).attention);
  }
  for (const AttentionKind kind : kinds) {
    for (const char* read : Spec(kind).sections) {
      if (section == read) return true;
    }
  }
  return false;
}

void DeriveFeatures(ModelConfig& config) {
  if (!config.UsesFeatureMap()) return;
  if (config.n_dims == 0 && UsesOmega(config.feature_map)) {
    config.n_dims = config.d_key;
  }
  // Sums of signed features may come near 0 with either sign.
  if (config.denominator == Denominator::kExact &&
      Traits(config.feature_map).is_signed) {
    config.denominator = Denominator::kSigned;
  }
}

ModelConfig Finished(ModelConfig config) {
  FinishConfig(config);
  return config;
}

void FinishConfig(ModelConfig& config) {
  ModelConfig finished = config;
  CheckRanges(finished);
  NormaliseLayers(finished);
  DeriveTask(finished);
  CheckAttentionDropout(finished);
  ResetUnread(finished);
  DeriveHeads(finished);
  DeriveFeatures(finished);
  CheckRanges(finished);
  CheckCombinations(finished);
  CheckTotals(finished);
  config = finished;
}

void SetConfigField(ModelConfig& config, std::string_view key,
                    std::string_view value) {
  if (key == "layers") {
    config.layers = LayersFromText(value);
    return;
  }
  const ConfigField* field = FindField(key);
  if (field == nullptr) {
    throw ArgumentError("config", "a key of config.json", Quoted(key));
  }
  ModelConfig changed = config;
  if (!SetFromText(*field, value, changed) || !InRange(*field, changed)) {
    RefuseKey(field->name, Wanted(*field, false), Quoted(value));
  }
  config = changed;
}

std::vector<ConfigKey> ConfigKeys() {
  std::vector<ConfigKey> keys;
  for (const ConfigField& field : ConfigFields()) {
    keys.push_back({field.name, field.help, Wanted(field, false),
                    DefaultText(field), MetavarOf(field)});
  }
  keys.push_back({"layers",
                  "mixers of the layers, repeated over the depth: "
                  "linear,full or linear,local:local_context=64",
                  "mixers of --attention, with options after colons",
                  "", "A[,B...]"});
  return keys;
}

}  // namespace tarn
