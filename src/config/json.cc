// config.json: sections of keys, and the pattern of the layers.
#include "core/json.h"

#include <algorithm>
#include <optional>

#include "config/fields.h"
#include "core/text.h"

namespace tarn {
namespace {

constexpr const char* kVersionKey = "format_version";
constexpr const char* kLayersKey = "layers";
constexpr const char* kMixerKey = "mixer";
constexpr uint64_t kMaxJsonBytes = uint64_t{1} << 20;
constexpr const char* kFile = "config.json";

FormatError BadKey(const std::string& key, const std::string& wanted,
                   const std::string& given) {
  return FormatError(StrCat(kFile, ": ", key), wanted, given);
}

// A mixer alone is its name; with keys, which `view` has, an object. `mixer` is
// the JSON text of its name or of the list of parallel mixers.
std::string EntryJson(const std::string& mixer, const LayerConfig& layer,
                      const ModelConfig& view) {
  if (layer.options.empty() && layer.branches.empty()) return mixer;
  std::string json = StrCat("{\"", kMixerKey, "\": ", mixer);
  for (const auto& [key, text] : layer.options) {
    json += StrCat(", \"", key, "\": ", ValueText(*FindField(key), view));
  }
  return json + "}";
}

std::string NameJson(const LayerConfig& layer) {
  return StrCat('"', Name(layer.attention), '"');
}

std::string LayersJson(const ModelConfig& config) {
  if (config.layers.empty()) {
    return StrCat("[\"", Name(config.attention), "\"]");
  }
  std::string json;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    const ModelConfig view = LayerView(config, static_cast<int64_t>(i));
    std::string mixer = layer.branches.empty() ? NameJson(layer) : "";
    for (size_t j = 0; j < layer.branches.size(); ++j) {
      const LayerConfig& branch = layer.branches[j];
      mixer += (j == 0 ? "[" : ", ") +
               EntryJson(NameJson(branch), branch, view.branches[j]) +
               (j + 1 == layer.branches.size() ? "]" : "");
    }
    json += (i == 0 ? "[" : ", ") + EntryJson(mixer, layer, view);
  }
  return json + "]";
}

std::string SectionJson(const ModelConfig& config, std::string_view section) {
  if (section == kLayersKey) return LayersJson(config);
  std::string json;
  for (const ConfigField& field : ConfigFields()) {
    if (field.section != section) continue;
    json += StrCat(json.empty() ? "{\n    \"" : ",\n    \"", field.key(),
                   "\": ", ValueText(field, config));
  }
  return json + "\n  }";
}

// A JSON value as an own key takes it; nothing for a value of another type.
std::optional<OwnValue> OwnFromJson(const OwnKey& key,
                                    const nlohmann::json& value) {
  if (std::holds_alternative<IntegerKey>(key.type)) {
    const auto number = JsonInteger(value);
    if (!number) return std::nullopt;
    return *number;
  }
  if (std::holds_alternative<RealKey>(key.type)) {
    if (!value.is_number()) return std::nullopt;
    return value.get<double>();
  }
  const bool flag = std::holds_alternative<FlagKey>(key.type);
  if (flag ? !value.is_boolean() : !value.is_string()) return std::nullopt;
  return ValueFrom(key, flag ? value.dump() : value.get<std::string>());
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
  } else if (const auto* own = std::get_if<OwnField>(&field.kind)) {
    const std::optional<OwnValue> given = OwnFromJson(*own->key, value);
    if (!given) return false;
    own->Set(config, *given);
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

// One object read into a configuration. Errors are kept, the first one counts.
class Reader {
 public:
  Reader(const nlohmann::json& object, bool whole)
      : object_(object), whole_(whole) {}

  Result<ModelConfig> Read() {
    if (!ReadVersion() || !ReadMembers()) return *error_;
    try {
      FinishConfig(config_);
    } catch (const ArgumentError& error) {
      return BadKey(error.where(), error.wanted(), error.given());
    }
    if (whole_ && !CheckWhole()) return *error_;
    return config_;
  }

 private:
  bool Fail(FormatError error) {
    error_ = std::move(error);
    return false;
  }

  bool ReadVersion() {
    const std::string wanted = StrCat(kFormatVersion);
    const auto found = object_.find(kVersionKey);
    if (found == object_.end()) {
      return !whole_ || Fail(BadKey(kVersionKey, wanted, "no such key"));
    }
    const auto version = JsonInteger(*found);
    if (version != kFormatVersion) {
      return Fail(BadKey(kVersionKey, wanted, JsonGiven(*found)));
    }
    return true;
  }

  // A key next to the version is a section in a file, and a section or a field
  // in an object written by hand.
  bool ReadMembers() {
    // A pattern names the layers' mixers, whose keys may come before it.
    if (object_.contains(kLayersKey) && !ReadLayers(object_[kLayersKey])) {
      return false;
    }
    const auto attention = object_.find("attention");
    if (!config_.layers.empty() && attention != object_.end() &&
        *attention != Name(config_.layers.front().attention)) {
      return Fail(BadKey("attention",
                         "the first mixer of layers, or no such key",
                         JsonGiven(*attention)));
    }
    for (const auto& [key, value] : object_.items()) {
      if (key == kVersionKey || key == kLayersKey) continue;
      // By which transformers finds tarn's class.
      if (key == "model_type" && value == "tarn") continue;
      const ConfigField* field = FindField(key);
      // "norm" is a section and a key: the value tells which.
      if (!whole_ && field != nullptr && !value.is_object()) {
        if (!Set(*field, key, value)) return false;
        given_.push_back(field);
      } else if (IsSection(key)) {
        if (!ReadSection(key, value)) return false;
      } else {
        return Fail(FormatError(
            kFile, StrCat("known ", whole_ ? "sections" : "keys", " only"),
            StrCat("the unknown key ", Quoted(key))));
      }
    }
    return true;
  }

  static bool IsSection(std::string_view key) {
    const std::vector<std::string_view> names = SectionNames();
    return std::find(names.begin(), names.end(), key) != names.end();
  }

  bool Set(const ConfigField& field, const std::string& named,
           const nlohmann::json& value) {
    return SetFromJson(field, value, whole_, config_) ||
           Fail(BadKey(named, Wanted(field, whole_), JsonGiven(value)));
  }

  bool ReadSection(const std::string& section, const nlohmann::json& value) {
    if (!value.is_object()) {
      return Fail(BadKey(section, "an object", JsonGiven(value)));
    }
    for (const auto& [key, member] : value.items()) {
      const ConfigField* found = nullptr;
      for (const ConfigField& field : ConfigFields()) {
        if (field.section == section && key == field.key()) found = &field;
      }
      const std::string named = section + "." + key;
      if (found == nullptr) {
        return Fail(BadKey(section, "the keys of this section",
                           StrCat("the unknown key ", Quoted(key))));
      }
      if (!Set(*found, named, member)) return false;
      given_.push_back(found);
    }
    sections_.push_back(section);
    return true;
  }

  static constexpr const char* kMixersWanted =
      "a list of mixers, each a name or an object with its mixer and keys";

  bool ReadLayers(const nlohmann::json& value) {
    if (!value.is_array() || value.empty()) {
      return Fail(BadKey(kLayersKey, kMixersWanted, JsonGiven(value)));
    }
    try {
      for (const nlohmann::json& entry : value) {
        if (!ReadEntry(entry, config_.layers.emplace_back())) return false;
      }
    } catch (const ArgumentError& error) {
      return Fail(BadKey(error.where(), error.wanted(), error.given()));
    }
    return true;
  }

  // An entry of the list, or of the list of an entry's parallel mixers. Throws
  // ArgumentError for an unknown mixer.
  bool ReadEntry(const nlohmann::json& entry, LayerConfig& layer,
                 bool branch = false) {
    const bool keys = entry.is_object() && entry.contains(kMixerKey);
    const nlohmann::json& mixer = keys ? entry[kMixerKey] : entry;
    if (mixer.is_array() && keys && !branch && mixer.size() > 1) {
      if (!ReadBranches(mixer, layer)) return false;
    } else if (mixer.is_string()) {
      // A mixer's name cannot hold separators of the text form.
      const std::string name = mixer.get<std::string>();
      const char* separators = branch ? ",:+" : ",:";
      const bool plain = name.find_first_of(separators) == name.npos;
      const auto read = LayersFromText(plain ? name : Quoted(name));
      layer.attention = read.front().attention;
    } else {
      return Fail(BadKey(kLayersKey, kMixersWanted, JsonGiven(entry)));
    }
    return !keys || ReadOptions(entry, layer);
  }

  bool ReadBranches(const nlohmann::json& list, LayerConfig& layer) {
    std::vector<AttentionKind> kinds;
    for (const nlohmann::json& entry : list) {
      LayerConfig& branch = layer.branches.emplace_back();
      if (!ReadEntry(entry, branch, /*branch=*/true)) return false;
      kinds.push_back(branch.attention);
      if (kinds.size() > kMostBranches) break;  // refused below
    }
    layer.attention = LayersFromText(ParallelName(kinds)).front().attention;
    return true;
  }

  bool ReadOptions(const nlohmann::json& entry, LayerConfig& layer) {
    for (const auto& [key, value] : entry.items()) {
      if (key == kMixerKey) continue;
      const ConfigField* field = FindField(key);
      ModelConfig scratch;
      if (field == nullptr) {
        return Fail(
            BadKey(kLayersKey, "keys of the mixer's sections", Quoted(key)));
      }
      if (!SetFromJson(*field, value, false, scratch)) {
        return Fail(BadKey(StrCat(kLayersKey, ".", key), Wanted(*field, false),
                           JsonGiven(value)));
      }
      std::string text = ValueText(*field, scratch);
      if (text.front() == '"') text = text.substr(1, text.size() - 2);
      layer.options.emplace_back(key, std::move(text));
    }
    return true;
  }

  // Every key of the sections that this model reads must be there, and no other
  // sections.
  bool CheckWhole() {
    constexpr int kMaxListed = 8;
    for (const std::string& section : sections_) {
      if (ReadsSection(config_, section)) continue;
      return Fail(BadKey(section, "sections that this model reads", section));
    }
    std::string missing;
    int count = 0;
    const auto miss = [&](const std::string& name) {
      if (++count > kMaxListed) return;
      missing += (missing.empty() ? "" : ", ") + name;
    };
    for (const ConfigField& field : ConfigFields()) {
      if (Given(field)) continue;
      if (std::string_view(field.section) != kLayersKey &&
          ReadsSection(config_, field.section)) {
        miss(StrCat(field.section, ".", field.key()));
      }
    }
    if (config_.HasAttention() && !object_.contains(kLayersKey)) {
      miss(kLayersKey);
    }
    if (count == 0) return true;
    if (count > kMaxListed) missing += ", ...";
    return Fail(FormatError(kFile,
                            "every key of the sections that the model reads",
                            StrCat(count, " missing: ", missing)));
  }

  bool Given(const ConfigField& field) const {
    return std::find(given_.begin(), given_.end(), &field) != given_.end();
  }

  const nlohmann::json& object_;
  const bool whole_;
  ModelConfig config_;
  std::vector<const ConfigField*> given_;
  std::vector<std::string> sections_;
  std::optional<FormatError> error_;
};

// whole: every key that the model reads must be there, with derived sizes.
Result<ModelConfig> ReadConfig(std::string_view json, bool whole) {
  auto parsed = ParseStrictJson(json, kFile, kMaxJsonBytes);
  if (!parsed.ok()) return parsed.error();
  if (!parsed.value().is_object()) {
    return FormatError(kFile, "an object", JsonGiven(parsed.value()));
  }
  return Reader(parsed.value(), whole).Read();
}

}  // namespace

std::string FieldsText(const ModelConfig& finished, bool unread) {
  std::string json = StrCat("{\n  \"", kVersionKey, "\": ", kFormatVersion);
  for (const ConfigField& field : ConfigFields()) {
    // A program's own mixer leaves no trace in models without it.
    if ((field.added || !unread) && !ReadsSection(finished, field.section)) {
      continue;
    }
    json += StrCat(",\n  \"", field.name, "\": ", ValueText(field, finished));
  }
  if (!finished.layers.empty()) {
    json += StrCat(",\n  \"", kLayersKey, "\": ", LayersJson(finished));
  }
  return json + "\n}\n";
}

std::string ReadKeysToJson(const ModelConfig& config) {
  const ModelConfig finished = Finished(config);
  std::string json;
  const auto add = [&](const ConfigField& field) {
    if (!ReadsField(finished, field)) return;
    json += StrCat(json.empty() ? "{\n  \"" : ",\n  \"", field.name,
                   "\": ", ValueText(field, finished));
  };
  const auto first = [](const ConfigField& field) {
    const std::string_view name = field.name;
    return name == "arch" || name == "task";
  };
  for (const ConfigField& field : ConfigFields()) {
    if (first(field)) add(field);
  }
  if (!finished.layers.empty()) {
    json += StrCat(",\n  \"", kLayersKey, "\": ", LayersJson(finished));
  }
  for (const ConfigField& field : ConfigFields()) {
    if (!first(field)) add(field);
  }
  return json + "\n}\n";
}

Result<ModelConfig> ConfigFromJson(std::string_view json) {
  return ReadConfig(json, /*whole=*/true);
}

Result<ModelConfig> ConfigFromPartialJson(std::string_view json) {
  return ReadConfig(json, /*whole=*/false);
}

std::string ConfigToFlatJson(const ModelConfig& config) {
  return FieldsText(Finished(config));
}

std::string ConfigToJson(const ModelConfig& config) {
  const ModelConfig finished = Finished(config);
  std::string json = StrCat("{\n  \"", kVersionKey, "\": ", kFormatVersion);
  for (const std::string_view section : SectionNames()) {
    if (!ReadsSection(finished, section)) continue;
    json += StrCat(",\n  \"", section, "\": ", SectionJson(finished, section));
  }
  return json + "\n}\n";
}

}  // namespace tarn
