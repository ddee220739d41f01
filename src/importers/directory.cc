#include "importers/directory.h"

#include "core/json.h"
#include "core/text.h"
#include "importers/importer.h"

namespace tarn {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 20;

const std::vector<Importer>& Importers() {
  static const std::vector<Importer> all = [] {
    std::vector<Importer> rows;
    for (const auto& some :
         {SoftmaxImporters(), WindowImporters(), GptImporters(),
          MambaImporters(), GraniteImporters(), QwenImporters(),
          DeltaImporters(), MinimaxImporters(), KimiImporters(),
          FalconImporters(), HybridImporters(), NemotronImporters(),
          LfmImporters(), GriffinImporters(), XlstmImporters(),
          FlashDeltaImporters(), FlashDecayImporters(), FlashRwkvImporters()}) {
      rows.insert(rows.end(), some.begin(), some.end());
    }
    return rows;
  }();
  return all;
}

// Published files hold Infinity, which JSON lacks, as a bare word: in quotes it
// can be read, and the keys that may have it know both.
std::string WithQuotedInfinity(std::string_view json) {
  constexpr std::string_view kWord = "Infinity";
  std::string text;
  bool quoted = false;
  for (size_t i = 0; i < json.size(); ++i) {
    if (quoted && json[i] == '\\' && i + 1 < json.size()) {
      text += json[i++];  // with the character that it escapes
    } else if (json[i] == '"') {
      quoted = !quoted;
    }
    if (!quoted && json.substr(i).starts_with(kWord)) {
      text += "\"Infinity\"";
      i += kWord.size() - 1;
    } else {
      text += json[i];
    }
  }
  return text;
}

Result<nlohmann::json> ReadObject(std::string_view json,
                                  const std::string& where) {
  Result<nlohmann::json> parsed =
      ParseStrictJson(WithQuotedInfinity(json), where, kMostBytes);
  if (parsed.ok() && !parsed.value().is_object()) {
    return FormatError(where, "an object", JsonGiven(parsed.value()));
  }
  return parsed;
}

constexpr const char* kOneStream =
    "one residual stream of all layers, and softmax attention that reads all "
    "tokens; several streams and an index of tokens cannot be run";

// Types with a part that no model of tarn has.
struct RefusedType {
  const char *model_type, *wanted;
};
constexpr RefusedType kRefused[] = {
    {"bailing_hybrid",
     "decays of low rank without a lower bound, heads of latent attention "
     "without gates, and experts without groups"},
    {"qwen4_exp", kOneStream},
    {"qwen4_exp_text", kOneStream},
    {"glm5_next", kOneStream},
    {"glm5_next_text", kOneStream},
    {"zamba",
     "layers that read what the layer before them gives; shared "
     "blocks that also read the token's embedding cannot be run"},
    {"zamba2",
     "layers that read what the layer before them gives; shared "
     "blocks that also read the token's embedding cannot be run"}};

// The row of a type. Throws FormatError.
const Importer& RowOf(const nlohmann::json& object, const std::string& where) {
  const auto type = object.find("model_type");
  std::string known;
  for (const Importer& row : Importers()) {
    if (type != object.end() && *type == row.model_type) return row;
    known += (known.empty() ? "" : ", ") + std::string(row.model_type);
  }
  for (const RefusedType& refused : kRefused) {
    if (type == object.end() || *type != refused.model_type) continue;
    throw FormatError(StrCat(where, ": model_type"), refused.wanted,
                      JsonGiven(*type));
  }
  throw FormatError(StrCat(where, ": model_type"), "one of " + known,
                    type == object.end() ? "no such key" : JsonGiven(*type));
}

}  // namespace

bool IsPublishedConfig(std::string_view json) {
  const auto object = ReadObject(json, "config.json");
  return object.ok() && object.value().contains("model_type") &&
         !object.value().contains("format_version");
}

Result<ModelConfig> ImportConfig(std::string_view json,
                                 const std::string& where) {
  Result<nlohmann::json> object = ReadObject(json, where);
  if (!object.ok()) return object.error();
  try {
    const Importer& row = RowOf(object.value(), where);
    PublishedConfig published(std::move(object).Take(), where);
    published.WantNull("quantization_config");
    ModelConfig config = row.config(published);
    published.RequireAllRead();
    config.head_bias = false;  // no type of the table has one
    FinishConfig(config);
    return config;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kFormat) return error;
    return FormatError(StrCat(where, ": ", error.where()), error.wanted(),
                       error.given());
  }
}

Result<std::shared_ptr<const WeightSource>> ImportWeights(
    std::string_view json, const ModelConfig& config,
    std::shared_ptr<const WeightSource> source) {
  const std::string path = source->path();
  Result<nlohmann::json> object = ReadObject(json, path);
  if (!object.ok()) return object.error();
  try {
    const Importer& row = RowOf(object.value(), path);
    PublishedTensors from(std::move(source),
                          PublishedConfig(std::move(object).Take(), path));
    ImportedTensors to(config);
    row.tensors(config, from, to);
    from.RequireAllRead();
    return std::shared_ptr<const WeightSource>(
        std::make_shared<WeightView>(path, to.Take()));
  } catch (const Error& error) {
    return FormatError(error.where(), error.wanted(), error.given());
  }
}

Result<nlohmann::json> PublishedKey(std::string_view json, const char* key,
                                    const std::string& where) {
  const Result<nlohmann::json> object = ReadObject(json, where);
  if (!object.ok()) return object;
  const nlohmann::json none;
  const nlohmann::json inner = object.value().value("text_config", none);
  const nlohmann::json value = object.value().value(key, none);
  return value.is_null() && inner.is_object() ? inner.value(key, none) : value;
}

std::vector<const char*> PublishedModelTypes() {
  std::vector<const char*> types;
  for (const Importer& row : Importers()) types.push_back(row.model_type);
  return types;
}

}  // namespace tarn
