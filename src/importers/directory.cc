#include "importers/directory.h"

#include "core/json.h"
#include "core/text.h"
#include "importers/importer.h"

namespace tarn {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 20;

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

// The row of a type. Throws FormatError.
const Importer& RowOf(const nlohmann::json& object, const std::string& where) {
  const auto type = object.find("model_type");
  std::string known;
  for (const Importer& row : Importers()) {
    if (type != object.end() && *type == row.model_type) return row;
    known += (known.empty() ? "" : ", ") + std::string(row.model_type);
  }
  throw FormatError(StrCat(where, ": model_type"), "one of " + known,
                    type == object.end() ? "no such key" : JsonGiven(*type));
}

}  // namespace

const std::vector<Importer>& Importers() {
  static const std::vector<Importer> all = [] {
    std::vector<Importer> rows;
    for (const auto& some :
         {SoftmaxImporters(), MambaImporters(), GraniteImporters()}) {
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
  const auto object = ReadObject(json, path);
  if (!object.ok()) return object.error();
  try {
    PublishedTensors from(std::move(source));
    ImportedTensors to(config);
    RowOf(object.value(), path).tensors(config, from, to);
    from.RequireAllRead();
    return std::shared_ptr<const WeightSource>(
        std::make_shared<WeightView>(path, to.Take()));
  } catch (const Error& error) {
    return FormatError(error.where(), error.wanted(), error.given());
  }
}

std::vector<const char*> PublishedModelTypes() {
  std::vector<const char*> types;
  for (const Importer& row : Importers()) types.push_back(row.model_type);
  return types;
}

}  // namespace tarn
