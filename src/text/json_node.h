// A value of a tokenizer.json with its path, so that every error can name the
// place. Included by .cc files only, as core/json.h is.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/json.h"

namespace tarn {

/// Throws the FormatError of a place in tokenizer.json; path: "model.vocab", or
/// empty for the whole file.
[[noreturn]] void RefuseJson(const std::string& path, const std::string& wanted,
                             const std::string& given);

/// Does not own the value. All functions throw FormatError with the path.
struct JsonNode {
  const nlohmann::json* value;  // null: the key is absent
  std::string path;

  /// Absent, or the value null.
  bool null() const { return value == nullptr || value->is_null(); }
  std::string given() const;
  [[noreturn]] void Refuse(const std::string& wanted) const {
    RefuseJson(path, wanted, given());
  }
  /// The value must be an object.
  JsonNode operator[](const char* key) const;
  JsonNode at(size_t i) const;  // of an array
  const std::string& text() const;
  /// An absent key has the value `absent`.
  bool flag(bool absent) const;
  /// The length of an array.
  size_t array() const;
  /// The text of "type"; the value must be an object that has one.
  const std::string& type() const;
  /// An integer from `low` to `high`.
  int64_t whole(int64_t low, int64_t high) const;
};

/// An object with no other keys than these.
void CheckKeys(const JsonNode& node, std::initializer_list<const char*> keys);
/// An object whose "type" is this one.
void CheckType(const JsonNode& node, const char* type);
void WantNull(const JsonNode& node);
/// The keys and the version of a whole tokenizer.json, which must not cut or
/// pad.
void CheckTokenizerRoot(const JsonNode& root);

/// The token id that a value stands for, or -1.
int32_t IdOrNone(const nlohmann::json& value);
std::string IdWanted();
int32_t IdOf(const JsonNode& node);

}  // namespace tarn
