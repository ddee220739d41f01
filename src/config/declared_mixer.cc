#include "config/declared_mixer.h"

#include <algorithm>
#include <limits>

#include "config/fields.h"
#include "core/json.h"
#include "core/text.h"

namespace tarn {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxBytes = uint64_t{1} << 20;
constexpr const char* kWhat = "mixer";

FormatError Bad(const std::string& key, const std::string& wanted,
                const json& given) {
  return FormatError(StrCat(kWhat, ": ", key), wanted, JsonGiven(given));
}

// Whether a key is a size, and its value.
bool IsSize(const ConfigField& field) {
  const auto* own = std::get_if<OwnField>(&field.kind);
  return std::holds_alternative<IntegerField>(field.kind) ||
         (own != nullptr && std::holds_alternative<IntegerKey>(own->key->type));
}
int64_t SizeOf(const ConfigField& field, const ModelConfig& layer) {
  const auto* own = std::get_if<OwnField>(&field.kind);
  if (own != nullptr) return std::get<int64_t>(own->Get(layer));
  return layer.*std::get<IntegerField>(field.kind).member;
}

// A size: a number, or the product of keys of a configuration.
struct Size {
  int64_t factor = 1;
  std::vector<const ConfigField*> keys;

  int64_t Of(const ModelConfig& layer) const {
    int64_t size = factor;
    for (const ConfigField* key : keys) size *= SizeOf(*key, layer);
    return size;
  }
};
using Shape = std::vector<Size>;

Size SizeFrom(const std::string& where, const json& value) {
  constexpr const char* kWanted =
      "a number from 1 or names of keys that are sizes, with * between them";
  Size size;
  if (const auto number = JsonInteger(value)) {
    if (*number < 1 || *number > std::numeric_limits<int32_t>::max()) {
      throw Bad(where, kWanted, value);
    }
    size.factor = *number;
    return size;
  }
  if (!value.is_string()) throw Bad(where, kWanted, value);
  const std::string text = value.get<std::string>();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('*', begin), text.size());
    const ConfigField* key = FindField(text.substr(begin, end - begin));
    if (key == nullptr || !IsSize(*key)) throw Bad(where, kWanted, value);
    size.keys.push_back(key);
    begin = end + 1;
  }
  return size;
}

Shape ShapeFrom(const std::string& where, const json& value) {
  if (!value.is_array()) throw Bad(where, "a list of sizes", value);
  Shape shape;
  for (const json& size : value) shape.push_back(SizeFrom(where, size));
  return shape;
}

std::vector<int64_t> Sizes(const Shape& shape, const ModelConfig& layer) {
  std::vector<int64_t> sizes;
  for (const Size& size : shape) sizes.push_back(size.Of(layer));
  return sizes;
}

const json& Member(const json& object, const char* key) {
  static const json none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

std::string Text(const json& object, const char* key) {
  const json& value = Member(object, key);
  if (!value.is_string()) throw Bad(key, "a text", value);
  return value.get<std::string>();
}

double Number(const json& object, const char* key) {
  const json& value = Member(object, key);
  if (!value.is_number()) throw Bad(key, "a number", value);
  return value.get<double>();
}

bool Flag(const json& object, const char* key, bool absent) {
  const json& value = Member(object, key);
  if (value.is_null()) return absent;
  if (!value.is_boolean()) throw Bad(key, "true or false", value);
  return value.get<bool>();
}

void SetWeights(const json& value, MixerSpec& spec) {
  if (!value.is_array()) {
    throw Bad("weights", "a list of [name, [sizes]]", value);
  }
  std::vector<std::pair<std::string, Shape>> weights;
  for (const json& entry : value) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string()) {
      throw Bad("weights", "a list of [name, [sizes]]", entry);
    }
    weights.emplace_back(entry[0].get<std::string>(),
                         ShapeFrom("weights", entry[1]));
  }
  spec.weights = [weights](const ModelConfig& layer) {
    std::vector<NamedShape> shapes;
    for (const auto& [name, shape] : weights) {
      shapes.emplace_back(name, Sizes(shape, layer));
    }
    return shapes;
  };
}

void SetState(const json& value, MixerSpec& spec) {
  if (value.is_null()) return;
  if (!value.is_array()) throw Bad("state", "a list of tensors", value);
  std::vector<std::pair<StateTensor, Shape>> tensors;
  for (const json& entry : value) {
    if (!entry.is_object()) throw Bad("state", "a list of tensors", entry);
    StateTensor tensor{KeptText(Text(entry, "name")), {}};
    if (entry.contains("initial")) {
      tensor.initial = static_cast<float>(Number(entry, "initial"));
    }
    tensor.grows = Flag(entry, "grows", false);
    tensors.emplace_back(tensor, ShapeFrom("state", Member(entry, "shape")));
  }
  spec.can.recurrent = true;
  spec.state = [tensors](const ModelConfig& layer) {
    StateSpec state;
    for (const auto& [tensor, shape] : tensors) {
      state.push_back(tensor);
      state.back().shape = Sizes(shape, layer);
    }
    return state;
  };
}

// What a key takes: some words, true or false, or a number in a range.
decltype(OwnKey::type) KeyTypeFrom(const json& entry) {
  const json& words = Member(entry, "words");
  const json& usual = Member(entry, "default");
  if (!words.is_null()) {
    WordKey key;
    const std::string given = Text(entry, "default");
    if (!words.is_array()) throw Bad("words", "a list of texts", words);
    for (const json& word : words) {
      if (!word.is_string()) throw Bad("words", "a list of texts", word);
      key.words.push_back(word.get<std::string>());
    }
    const auto found = std::find(key.words.begin(), key.words.end(), given);
    if (found == key.words.end())
      throw Bad("default", "one of the words", usual);
    key.value = found - key.words.begin();
    return key;
  }
  if (usual.is_boolean()) return FlagKey{usual.get<bool>()};
  if (!Flag(entry, "integer", false)) {
    return RealKey{Number(entry, "min"), Number(entry, "max"),
                   Number(entry, "default")};
  }
  const auto integer = [&](const char* name) {
    const auto number = JsonInteger(Member(entry, name));
    if (!number) throw Bad(name, "an integer", Member(entry, name));
    return *number;
  };
  return IntegerKey{integer("min"), integer("max"), integer("default")};
}

std::vector<OwnKey> KeysFrom(const json& value) {
  std::vector<OwnKey> keys;
  if (value.is_null()) return keys;
  if (!value.is_array()) throw Bad("keys", "a list of keys", value);
  for (const json& entry : value) {
    if (!entry.is_object()) throw Bad("keys", "a list of keys", entry);
    keys.push_back({.name = Text(entry, "name"),
                    .help = Text(entry, "help"),
                    .type = KeyTypeFrom(entry),
                    .key = entry.contains("key") ? Text(entry, "key") : ""});
  }
  return keys;
}

}  // namespace

AttentionKind RegisterDeclaredMixer(std::string_view text) {
  const json object = ParseStrictJson(text, kWhat, kMaxBytes).Take();
  if (!object.is_object()) throw Bad("row", "an object", object);
  MixerSpec spec{.name = KeptText(Text(object, "name")),
                 .family = nullptr,
                 .sections = {},
                 .can = {.bidirectional = Flag(object, "bidirectional", false),
                         .rotary = false}};
  spec.family =
      object.contains("family") ? KeptText(Text(object, "family")) : spec.name;
  spec.keys = KeysFrom(Member(object, "keys"));
  SetWeights(Member(object, "weights"), spec);
  SetState(Member(object, "state"), spec);
  return RegisterMixer(spec);
}

}  // namespace tarn
