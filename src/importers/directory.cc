#include "importers/directory.h"

#include <algorithm>
#include <utility>

#include "core/json.h"
#include "core/text.h"
#include "importers/importer.h"
#include "importers/published_names.h"

namespace tarn {
namespace {

constexpr const char* kConfigFile = "config.json";
// The work on a configuration grows with the square of their number: a second
// for these, of which published models have a hundred.
constexpr size_t kMostListedLayers = 512;

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
      ParseStrictJson(WithQuotedInfinity(json), where, kMaxConfigBytes);
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

// With a file that a tokenizer can be read from.
bool HasTokenizer(const TextFiles& files) {
  return files.HasVocabulary() || files.Has("tokenizer.json") ||
         files.Has("rwkv_vocab_v20230424.txt");
}

}  // namespace

const std::vector<Importer>& Importers() {
  static const std::vector<Importer> all = [] {
    std::vector<Importer> rows;
    for (const auto& some :
         {SoftmaxImporters(),    WindowImporters(),
          GptImporters(),        MambaImporters(),
          GraniteImporters(),    QwenImporters(),
          DeltaImporters(),      MinimaxImporters(),
          KimiImporters(),       FalconImporters(),
          HybridImporters(),     NemotronImporters(),
          LfmImporters(),        Lfm3Importers(),
          GriffinImporters(),    XlstmImporters(),
          FlashDeltaImporters(), FlashDecayImporters(),
          FlashRwkvImporters(),  FlashNormLinearImporters()}) {
      rows.insert(rows.end(), some.begin(), some.end());
    }
    return rows;
  }();
  return all;
}

bool IsPublishedConfig(std::string_view json) {
  const auto object = ReadObject(json, "config.json");
  return object.ok() && object.value().contains("model_type") &&
         !object.value().contains("format_version");
}

std::string PublishedTypeOf(std::string_view json) {
  const auto object = ReadObject(json, kConfigFile);
  const auto type = object.ok() ? object.value().find("model_type")
                                : nlohmann::json::const_iterator();
  return object.ok() && type != object.value().end() && type->is_string()
             ? type->get<std::string>()
             : "";
}

std::string GenerationSettingsOf(std::string_view json,
                                 const std::string& file) {
  nlohmann::ordered_json settings = {{"_from_model_config", true}};
  if (!file.empty()) {
    settings = nlohmann::ordered_json::parse(file, nullptr, false);
    if (!settings.is_object() ||
        !settings.value("eos_token_id", nlohmann::ordered_json()).is_null()) {
      return file;
    }
  }
  bool added = false;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    const auto found = PublishedKey(json, key, kConfigFile);
    if (!found.ok() || found.value().is_null() || settings.contains(key)) {
      continue;
    }
    settings[key] = found.value();
    added = true;
  }
  return added ? settings.dump(2) + "\n" : file;
}

ModelConfig ReadPublished(const Importer& row, PublishedConfig& published) {
  ModelConfig config = row.config(published);
  published.RequireAllRead();
  config.head_bias = false;  // no type of the table has one
  if (config.layers.size() > kMostListedLayers) {
    throw FormatError(published.where(),
                      StrCat("at most ", kMostListedLayers,
                             " layers that are listed one by one"),
                      StrCat(config.layers.size()));
  }
  // Some layers of another file of the type rotate; here none does.
  const auto rotates = [](const LayerConfig& layer) {
    return Spec(layer.attention).can.rotary;
  };
  if (config.positions == Positions::kRotary && !config.layers.empty() &&
      std::none_of(config.layers.begin(), config.layers.end(), rotates)) {
    config.positions = Positions::kNone;
  }
  FinishConfig(config);
  return config;
}

Result<ModelConfig> ImportConfig(std::string_view json,
                                 const std::string& where) {
  const Result<nlohmann::json> object = ReadObject(json, where);
  if (!object.ok()) return object.error();
  try {
    const Importer& row = RowOf(object.value(), where);
    PublishedConfig published(object.value(), where);
    published.WantNull("quantization_config");
    return ReadPublished(row, published);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kFormat) return error;
    const Error named = NamedAsPublished(object.value(), error);
    return FormatError(StrCat(where, ": ", named.where()), named.wanted(),
                       named.given());
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

std::vector<std::string> CompanionFiles() {
  return {"tokenizer.json",
          "tokenizer_config.json",
          "added_tokens.json",
          "special_tokens_map.json",
          "vocab.json",
          "merges.txt",
          "tokenizer.model",
          "rwkv_vocab_v20230424.txt",
          "generation_config.json",
          "chat_template.jinja"};
}

Error InFolder(const std::string& dir, const Error& error) {
  if (error.wanted().empty()) {
    return Error(error.code(), StrCat(dir, "/", error.what()));
  }
  return Error(error.code(), StrCat(dir, "/", error.where()), error.wanted(),
               error.given());
}

Result<bool> IsPublishedModel(const ModelPath& model) {
  const Result<std::string> text = model.Read(kConfigFile, kMaxConfigBytes);
  if (!text.ok()) return text.error();
  return IsPublishedConfig(text.value());
}

Result<ModelConfig> ReadModelConfig(const ModelPath& model) {
  const Result<std::string> text = model.Read(kConfigFile, kMaxConfigBytes);
  if (!text.ok()) return text.error();
  const bool published = IsPublishedConfig(text.value());
  Result<ModelConfig> config = published
                                   ? ImportConfig(text.value(), kConfigFile)
                                   : ConfigFromJson(text.value());
  if (!config.ok()) return InFolder(model.path(), config.error());
  if (!published || HasTokenizer(model)) return config;
  // Without a tokenizer its texts are decimal ids.
  ModelConfig numbers = std::move(config).Take();
  numbers.tokenizer = TokenizerKind::kIds;
  return numbers;
}

Result<std::shared_ptr<const WeightSource>> OpenNamedWeights(
    const ModelPath& model, const ModelConfig& config, bool use_mmap) {
  auto source = model.Weights(use_mmap);
  if (!source.ok()) return source;
  const Result<std::string> text = model.Read(kConfigFile, kMaxConfigBytes);
  if (!text.ok()) return text.error();
  if (!IsPublishedConfig(text.value())) return source;
  return ImportWeights(text.value(), config, std::move(source).Take());
}

}  // namespace tarn
