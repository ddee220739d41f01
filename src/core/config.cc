#include "core/config.h"

#include <optional>

#include "core/config_fields.h"
#include "core/json.h"
#include "core/text.h"

namespace tarn {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr const char* kVersionKey = "format_version";
constexpr uint64_t kMaxJsonBytes = uint64_t{1} << 20;
constexpr const char* kFile = "config.json";

// 2^40 parameters are 4 TiB, 2^30 values of recurrent state 4 GiB: beyond what
// any machine here can hold, and small enough that byte counts cannot overflow.
constexpr int64_t kMaxParameters = int64_t{1} << 40;
constexpr int64_t kMaxStateValues = int64_t{1} << 30;

using NamedShape = std::pair<std::string, std::vector<int64_t>>;

[[noreturn]] void Refuse(const char* key, const std::string& wanted,
                         const std::string& given) {
  throw ArgumentError(key, wanted, given);
}

void CheckRanges(const ModelConfig& config) {
  for (const ConfigField& field : ConfigFields()) {
    if (InRange(field, config)) continue;
    // An enum outside its words has no text of its own.
    const bool choice = std::holds_alternative<ChoiceField>(field.kind);
    Refuse(field.name, Wanted(field, false),
           choice ? "a value outside the enum" : ValueText(field, config));
  }
}

void Derive(ModelConfig& config) {
  if (config.d_key == 0 || config.d_value == 0) {
    if (config.d_model % config.n_heads != 0) {
      Refuse("n_heads",
             StrCat("a divisor of d_model = ", config.d_model,
                    " (or d_key and d_value given)"),
             StrCat(config.n_heads));
    }
    const int64_t width = config.d_model / config.n_heads;
    if (config.d_key == 0) config.d_key = width;
    if (config.d_value == 0) config.d_value = width;
  }
  if (config.d_ff == 0) config.d_ff = 4 * config.d_model;
}

void CheckCombinations(const ModelConfig& config) {
  const bool concat = config.position_combine == PositionCombine::kConcat;
  if (concat && config.positions != Positions::kSinusoidal) {
    Refuse("position_combine", "'concat' with sinusoidal positions only",
           StrCat("positions '", Name(config.positions), "'"));
  }
  if (concat && config.d_model % 2 != 0) {
    Refuse("d_model", "an even width for position_combine 'concat'",
           StrCat(config.d_model));
  }
  if (config.positions == Positions::kRotary && config.d_key % 2 != 0) {
    Refuse("d_key", "an even width for rotary positions", StrCat(config.d_key));
  }
  if (config.tied_head && config.EmbeddingWidth() != config.d_model) {
    Refuse("tied_head", "false with position_combine 'concat'", "true");
  }
  if (config.attention_dropout > 0 &&
      config.attention != AttentionKind::kFull) {
    Refuse("attention_dropout",
           StrCat("0 for attention '", Name(config.attention), "'"),
           StrCat(config.attention_dropout));
  }
}

// The shapes of one layer, without the "layers.{i}." in front.
std::vector<NamedShape> LayerShapes(const ModelConfig& config) {
  const int64_t d_model = config.d_model;
  const int64_t key_width = config.n_heads * config.d_key;
  const int64_t value_width = config.n_heads * config.d_value;
  std::vector<NamedShape> shapes;
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    shapes.push_back({name + ".weight", {out, in}});
    shapes.push_back({name + ".bias", {out}});
  };
  linear("attention.query_projection", key_width, d_model);
  linear("attention.key_projection", key_width, d_model);
  linear("attention.value_projection", value_width, d_model);
  linear("attention.out_projection", d_model, value_width);
  linear("linear1", config.d_ff, d_model);
  linear("linear2", d_model, config.d_ff);
  for (const char* norm : {"norm1", "norm2"}) {
    shapes.push_back({StrCat(norm, ".weight"), {d_model}});
    shapes.push_back({StrCat(norm, ".bias"), {d_model}});
  }
  return shapes;
}

std::vector<NamedShape> ShapesBeforeLayers(const ModelConfig& config) {
  std::vector<NamedShape> shapes = {
      {"value_embedding.weight", {config.vocab_size, config.EmbeddingWidth()}}};
  if (config.positions == Positions::kLearned) {
    shapes.push_back(
        {"pos_embedding.weight", {config.max_positions, config.d_model}});
  }
  return shapes;
}

std::vector<NamedShape> ShapesAfterLayers(const ModelConfig& config) {
  std::vector<NamedShape> shapes;
  if (config.final_norm) {
    shapes.push_back({"norm.weight", {config.d_model}});
    shapes.push_back({"norm.bias", {config.d_model}});
  }
  if (!config.tied_head) {
    shapes.push_back({"predictor.weight", {config.vocab_size, config.d_model}});
  }
  shapes.push_back({"predictor.bias", {config.vocab_size}});
  return shapes;
}

int64_t Elements(const std::vector<NamedShape>& shapes) {
  int64_t total = 0;
  for (const NamedShape& shape : shapes) {
    int64_t elements = 1;
    for (const int64_t size : shape.second) elements *= size;
    total += elements;
  }
  return total;
}

// Needs ranges checked and sizes derived; no product can overflow then.
int64_t CountParameters(const ModelConfig& config) {
  return Elements(ShapesBeforeLayers(config)) +
         config.n_layers * Elements(LayerShapes(config)) +
         Elements(ShapesAfterLayers(config));
}

void CheckTotals(const ModelConfig& config) {
  const int64_t parameters = CountParameters(config);
  if (parameters > kMaxParameters) {
    Refuse("config", StrCat("at most ", kMaxParameters, " parameters"),
           StrCat(parameters));
  }
  const int64_t state_values =
      config.n_layers * config.n_heads * config.d_key * config.d_value;
  if (config.attention == AttentionKind::kLinear &&
      state_values > kMaxStateValues) {
    Refuse("d_key",
           StrCat("n_layers * n_heads * d_key * d_value at most ",
                  kMaxStateValues, ", the values of the recurrent state"),
           StrCat(state_values));
  }
}

ModelConfig Finished(ModelConfig config) {
  FinishConfig(config);
  return config;
}

const ConfigField* FindField(std::string_view key) {
  for (const ConfigField& field : ConfigFields()) {
    if (key == field.name) return &field;
  }
  return nullptr;
}

// Sets a field from its JSON value. Numbers, booleans and texts are never
// taken for one another.
bool SetFromJson(const ConfigField& field, const nlohmann::json& value,
                 ModelConfig& config) {
  if (const auto* integer = std::get_if<IntegerField>(&field.kind)) {
    const auto number = JsonInteger(value);
    // In a file every size is written out: 0 stands for nothing.
    if (!number || *number == 0) return false;
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

std::optional<Error> CheckVersion(const nlohmann::json& object) {
  const auto found = object.find(kVersionKey);
  if (found == object.end()) {
    return BadKey(kVersionKey, StrCat(kFormatVersion), "no such key");
  }
  if (JsonInteger(*found) != kFormatVersion) {
    return BadKey(kVersionKey, StrCat(kFormatVersion), JsonGiven(*found));
  }
  return std::nullopt;
}

std::optional<Error> CheckKeys(const nlohmann::json& object) {
  constexpr int kMaxListed = 8;
  for (const auto& [key, value] : object.items()) {
    if (key != kVersionKey && FindField(key) == nullptr) {
      return FormatError(kFile, "the keys of format 1 only",
                         "the unknown key " + Quoted(key));
    }
  }
  std::string missing;
  int count = 0;
  for (const ConfigField& field : ConfigFields()) {
    if (object.contains(field.name) || ++count > kMaxListed) continue;
    missing += (missing.empty() ? "" : ", ") + std::string(field.name);
  }
  if (count == 0) return std::nullopt;
  if (count > kMaxListed) missing += ", ...";
  return FormatError(kFile, "every key of format 1",
                     StrCat(count, " missing: ", missing));
}

}  // namespace

int64_t ModelConfig::EmbeddingWidth() const {
  return position_combine == PositionCombine::kConcat ? d_model / 2 : d_model;
}

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
  auto parsed = ParseStrictJson(json, kFile, kMaxJsonBytes);
  if (!parsed.ok()) return parsed.error();
  const nlohmann::json& object = parsed.value();
  if (!object.is_object()) {
    return FormatError(kFile, "an object", JsonGiven(object));
  }
  if (auto error = CheckVersion(object)) return *error;
  if (auto error = CheckKeys(object)) return *error;
  ModelConfig config;
  for (const ConfigField& field : ConfigFields()) {
    const nlohmann::json& value = object.at(field.name);
    if (!SetFromJson(field, value, config)) {
      return BadKey(field.name, Wanted(field, true), JsonGiven(value));
    }
  }
  try {
    FinishConfig(config);
  } catch (const ArgumentError& error) {
    return BadKey(error.where(), error.wanted(), error.given());
  }
  return config;
}

std::string ConfigToJson(const ModelConfig& config) {
  const ModelConfig finished = Finished(config);
  std::string json = StrCat("{\n  \"", kVersionKey, "\": ", kFormatVersion);
  for (const ConfigField& field : ConfigFields()) {
    json += StrCat(",\n  \"", field.name, "\": ", ValueText(field, finished));
  }
  return json + "\n}\n";
}

void SetConfigField(ModelConfig& config, std::string_view key,
                    std::string_view value) {
  const ConfigField* field = FindField(key);
  if (field == nullptr) {
    throw ArgumentError("config", "a key of config.json", Quoted(key));
  }
  ModelConfig changed = config;
  if (!SetFromText(*field, value, changed) || !InRange(*field, changed)) {
    Refuse(field->name, Wanted(*field, false), Quoted(value));
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

std::vector<NamedShape> WeightShapes(const ModelConfig& config) {
  const ModelConfig finished = Finished(config);
  std::vector<NamedShape> shapes = ShapesBeforeLayers(finished);
  const std::vector<NamedShape> layer_shapes = LayerShapes(finished);
  for (int64_t layer = 0; layer < finished.n_layers; ++layer) {
    for (const auto& [name, shape] : layer_shapes) {
      shapes.push_back({StrCat("layers.", layer, ".", name), shape});
    }
  }
  for (NamedShape& shape : ShapesAfterLayers(finished)) {
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

int64_t ParameterCount(const ModelConfig& config) {
  return CountParameters(Finished(config));
}

}  // namespace tarn
