// The rows of the table of keys: those of every model, and between and after
// them those that parts of models register.
#include <algorithm>
#include <array>
#include <deque>
#include <set>

#include "config/fields.h"
#include "core/overloaded.h"
#include "core/text.h"

namespace tarn {
namespace {

// Sections of the keys in fields.cc, in the order of the file. Those of the
// oldest registered keys follow `layers`, the others come last.
constexpr std::array<const char*, 10> kCoreSections = {
    "model", "layers",    "positions",   "norm",           "feed_forward",
    "image", "recurrent", "convolution", "rotary_scaling", "block"};
constexpr size_t kBeforeOldest = 2;

struct Rows {
  std::list<ConfigField> fields{CoreFields().begin(), CoreFields().end()};
  std::deque<OwnKey> keys;  // what rows of registered keys point to
  std::deque<std::string> oldest, later;  // sections
};

Rows& TheRows() {
  static Rows rows;
  return rows;
}

std::vector<std::string_view> Sections() {
  const Rows& rows = TheRows();
  std::vector<std::string_view> names(kCoreSections.begin(),
                                      kCoreSections.begin() + kBeforeOldest);
  names.insert(names.end(), rows.oldest.begin(), rows.oldest.end());
  names.insert(names.end(), kCoreSections.begin() + kBeforeOldest,
               kCoreSections.end());
  names.insert(names.end(), rows.later.begin(), rows.later.end());
  return names;
}

// The row of a key, without registering anything first.
std::list<ConfigField>::iterator Found(std::string_view name) {
  std::list<ConfigField>& fields = TheRows().fields;
  return std::find_if(
      fields.begin(), fields.end(),
      [&](const ConfigField& field) { return name == field.name; });
}

bool HasPlace(const OwnKey& key) {
  return !key.after.empty() || !key.before.empty();
}

// The position of a key in lists: keys with the same neighbour in the order of
// their registration.
std::list<ConfigField>::iterator PlaceOf(const OwnKey& key) {
  std::list<ConfigField>& fields = TheRows().fields;
  if (!key.before.empty()) return Found(key.before);
  if (key.after.empty()) return fields.end();
  auto place = Found(key.after);
  if (place == fields.end()) return place;
  const auto follows = [&](const ConfigField& field) {
    const auto* own = std::get_if<OwnField>(&field.kind);
    return own != nullptr && own->key->after == key.after;
  };
  do {
    ++place;
  } while (place != fields.end() && follows(*place));
  return place;
}

void CheckOwn(const OwnKey& key) {
  const std::string where = StrCat("RegisterMixer: keys: ", key.name);
  if (key.name.empty() || Found(key.name) != TheRows().fields.end()) {
    throw ArgumentError(where, "a name that no key has", Quoted(key.name));
  }
  if (InRange(key, DefaultOf(key))) return;
  std::visit(
      Overloaded{[&](const FlagKey&) {},
                 [&](const WordKey& k) {
                   throw ArgumentError(
                       where, "words, one the default",
                       StrCat("number ", k.value, " of ", k.words.size()));
                 },
                 [&](const auto& k) {
                   throw ArgumentError(
                       where, StrCat("a default from ", k.min, " to ", k.max),
                       StrCat(k.value));
                 }},
      key.type);
}

// The name of a section for the rows of its keys, of which the first decides
// where the section is.
const char* KeptSection(const std::string& name, bool oldest) {
  Rows& rows = TheRows();
  for (std::deque<std::string>* sections : {&rows.oldest, &rows.later}) {
    for (const std::string& section : *sections) {
      if (section == name) return section.c_str();
    }
  }
  return (oldest ? rows.oldest : rows.later).emplace_back(name).c_str();
}

const std::string& KeyInSection(const OwnKey& key) {
  return key.key.empty() ? key.name : key.key;
}

}  // namespace

const std::list<ConfigField>& ConfigFields() {
  EnsureBuiltins();
  return TheRows().fields;
}

const ConfigField* FindField(std::string_view name) {
  EnsureBuiltins();
  const auto found = Found(name);
  return found == TheRows().fields.end() ? nullptr : &*found;
}

std::vector<std::string_view> SectionNames() {
  EnsureBuiltins();
  return Sections();
}

void AddOwnFields(const char* section, const std::vector<OwnKey>& keys,
                  bool added) {
  const std::vector<std::string_view> taken = Sections();
  std::set<std::string> names, places;
  for (const OwnKey& key : keys) {
    const std::string& in = key.section.empty() ? section : key.section;
    if (std::find(taken.begin(), taken.end(), in) != taken.end()) {
      throw ArgumentError("RegisterMixer: family",
                          "a separate section for its keys", Quoted(in));
    }
    CheckOwn(key);
    if (!names.insert(key.name).second ||
        !places.insert(in + "." + KeyInSection(key)).second) {
      throw ArgumentError("RegisterMixer: keys", "each name once",
                          Quoted(key.name) + " twice");
    }
  }
  Rows& rows = TheRows();
  for (const OwnKey& given : keys) {
    const OwnKey& key = rows.keys.emplace_back(given);
    const std::string& in = key.section.empty() ? section : key.section;
    rows.fields.insert(PlaceOf(key),
                       {key.name.c_str(), key.help.c_str(), OwnField{&key},
                        KeptSection(in, HasPlace(key)),
                        key.key.empty() ? nullptr : key.key.c_str(), added});
  }
}

}  // namespace tarn
