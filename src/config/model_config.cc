#include "config/model_config.h"

#include <algorithm>
#include <optional>

#include "config/fields.h"
#include "core/json.h"
#include "core/text.h"

namespace tarn {
namespace {

constexpr int kFormatVersion = 3;
constexpr const char* kVersionKey = "format_version";
constexpr uint64_t kMaxJsonBytes = uint64_t{1} << 20;
constexpr const char* kFile = "config.json";

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
    // Of no use to a model without heads, but a size of the file.
    const int64_t width = std::max<int64_t>(1, config.d_model / config.n_heads);
    if (config.d_key == 0) config.d_key = width;
    if (config.d_value == 0) config.d_value = width;
  }
  if (config.d_ff == 0) config.d_ff = 4 * config.d_model;
}

void Derive(ModelConfig& config) {
  DeriveHeads(config);
  if (config.task == Task::kDerived) {
    config.task = config.arch == Arch::kEncoder   ? Task::kClassify
                  : config.arch == Arch::kSeq2seq ? Task::kSeq2seq
                                                  : Task::kLm;
  }
  if (config.cross_attention == CrossAttention::kDerived) {
    config.cross_attention = config.attention == AttentionKind::kLinear
                                 ? CrossAttention::kLinear
                                 : CrossAttention::kFull;
  }
  if (config.arch == Arch::kSeq2seq && config.n_decoder_layers == 0) {
    config.n_decoder_layers = config.n_layers;
  }
  constexpr int64_t kMixtures = 10;  // of the paper's image models
  if (config.task == Task::kImage && config.n_mixtures == 0) {
    config.n_mixtures = kMixtures;
  }
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

// Sets a field from its JSON value. Numbers, booleans and texts are never
// taken for one another. whole: a file, where derived sizes are written out.
bool SetFromJson(const ConfigField& field, const nlohmann::json& value,
                 bool whole, ModelConfig& config) {
  if (const auto* integer = std::get_if<IntegerField>(&field.kind)) {
    const auto number = JsonInteger(value);
    if (!number) return false;
    if (whole && integer->derived && *number == 0) return false;
    config.*integer->member = *number;
  } else if (const auto* real = std::get_if<RealField>(&field.kind)) {
    if (!value.is_number()) return false;
    config.*real->member = value.get<double>();
  } else if (const auto* boolean = std::get_if<BoolField>(&field.kind)) {
    if (!value.is_boolean()) return false;
    config.*boolean->member = value.get<bool>();
  } else {
    if (!value.is_string() ||
        !SetFromText(field, value.get_ref<const std::string&>(), config)) {
      return false;
    }
  }
  return InRange(field, config);
}

FormatError BadKey(const std::string& key, const std::string& wanted,
                   const std::string& given) {
  return FormatError(StrCat(kFile, ": ", key), wanted, given);
}

// The version of the object; whole: there must be one.
Result<int> ReadVersion(const nlohmann::json& object, bool whole) {
  const std::string wanted = StrCat("1 to ", kFormatVersion);
  const auto found = object.find(kVersionKey);
  if (found == object.end()) {
    if (!whole) return kFormatVersion;
    return BadKey(kVersionKey, wanted, "no such key");
  }
  const auto version = JsonInteger(*found);
  if (!version || *version < 1 || *version > kFormatVersion) {
    return BadKey(kVersionKey, wanted, JsonGiven(*found));
  }
  return static_cast<int>(*version);
}

std::optional<Error> CheckKnown(const nlohmann::json& object, int version) {
  for (const auto& [key, value] : object.items()) {
    const ConfigField* field = FindField(key);
    const bool known = field != nullptr && field->since <= version;
    if (key != kVersionKey && !known) {
      return FormatError(kFile, StrCat("the keys of format ", version, " only"),
                         "the unknown key " + Quoted(key));
    }
  }
  return std::nullopt;
}

std::optional<Error> CheckWhole(const nlohmann::json& object, int version) {
  constexpr int kMaxListed = 8;
  std::string missing;
  int count = 0;
  for (const ConfigField& field : ConfigFields()) {
    if (field.since > version || object.contains(field.name)) continue;
    if (++count > kMaxListed) continue;
    missing += (missing.empty() ? "" : ", ") + std::string(field.name);
  }
  if (count == 0) return std::nullopt;
  if (count > kMaxListed) missing += ", ...";
  return FormatError(kFile, StrCat("every key of format ", version),
                     StrCat(count, " missing: ", missing));
}

// whole: every key of the version must be there, with derived sizes.
Result<ModelConfig> Read(std::string_view json, bool whole) {
  auto parsed = ParseStrictJson(json, kFile, kMaxJsonBytes);
  if (!parsed.ok()) return parsed.error();
  const nlohmann::json& object = parsed.value();
  if (!object.is_object()) {
    return FormatError(kFile, "an object", JsonGiven(object));
  }
  const Result<int> version = ReadVersion(object, whole);
  if (!version.ok()) return version.error();
  if (auto error = CheckKnown(object, version.value())) return *error;
  if (whole) {
    if (auto error = CheckWhole(object, version.value())) return *error;
  }
  ModelConfig config;
  for (const ConfigField& field : ConfigFields()) {
    const auto value = object.find(field.name);
    if (value == object.end()) continue;
    if (!SetFromJson(field, *value, whole, config)) {
      return BadKey(field.name, Wanted(field, whole), JsonGiven(*value));
    }
  }
  try {
    FinishConfig(config);
  } catch (const ArgumentError& error) {
    return BadKey(error.where(), error.wanted(), error.given());
  }
  return config;
}

}  // namespace

void FinishConfig(ModelConfig& config) {
  ModelConfig finished = config;
  CheckRanges(finished);
  Derive(finished);
  CheckRanges(finished);
  CheckCombinations(finished);
  CheckTotals(finished);
  config = finished;
}

Result<ModelConfig> ConfigFromJson(std::string_view json) {
  return Read(json, /*whole=*/true);
}

Result<ModelConfig> ConfigFromPartialJson(std::string_view json) {
  return Read(json, /*whole=*/false);
}

std::string ConfigToJson(const ModelConfig& config) {
  return FieldsText(Finished(config), kFormatVersion);
}

void SetConfigField(ModelConfig& config, std::string_view key,
                    std::string_view value) {
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

const std::vector<ConfigKey>& ConfigKeys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> keys;
    for (const ConfigField& field : ConfigFields()) {
      keys.push_back({field.name, field.help});
    }
    return keys;
  }();
  return keys;
}

}  // namespace tarn
