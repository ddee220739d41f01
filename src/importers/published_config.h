// The config.json of a published model, read key by key: what an importer does
// not ask for is an error, so that no option is ignored silently. Included by
// .cc files only.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace tarn {

/// All functions throw FormatError that names the key. Not thread-safe.
class PublishedConfig {
 public:
  /// object: of config.json; where: its path, for messages.
  PublishedConfig(nlohmann::json object, std::string where);

  const std::string& where() const { return where_; }
  bool Has(const char* key) const;
  /// Whether the key is there, if only as null.
  bool Holds(const char* key) const;
  /// Whether the key holds this text; marks it as read if so.
  bool HasWord(const char* key, const char* word);

  /// The value of a key, which must be there; those with a default may lack it
  /// or hold null.
  int64_t Integer(const char* key, int64_t least, int64_t most);
  int64_t Integer(const char* key, int64_t least, int64_t most, int64_t value);
  double Real(const char* key);
  double Real(const char* key, double value);
  bool Flag(const char* key, bool value);
  std::string Word(const char* key, const std::string& value);
  /// A list of words of this length; empty where the key is absent or null.
  std::vector<std::string> Words(const char* key, int64_t count);
  /// Of any length up to the bound.
  std::vector<std::string> WordsUpTo(const char* key, int64_t most);
  /// A list of integers; empty where the key is absent or null.
  std::vector<int64_t> Integers(const char* key, int64_t least, int64_t most);
  /// A list of this many numbers; ones where the key is absent or null.
  std::vector<double> Reals(const char* key, int64_t count);
  /// A member as a configuration; an empty one where it is absent or null. What
  /// is read of it counts as read here.
  PublishedConfig Section(const char* key);

  /// The member `text_config` of a model that also reads pictures, with the
  /// `tie_word_embeddings` of this one where it lacks that.
  PublishedConfig TextSection();

  /// Refuses another value than the only one that can be run; absent: that one.
  void Want(const char* key, bool value);
  void Want(const char* key, const char* value);
  void WantNull(const char* key);
  /// [least, most] of a key such as time_step_limit, whose last number may be
  /// Infinity in both of the ways that published files write it, which is 0
  /// here, as is an absent key.
  std::pair<double, double> Limits(const char* key);

  /// Keys that say nothing about the function that the model computes.
  void Ignore(std::initializer_list<const char*> keys);
  /// Throws FormatError naming a key that was not read and holds more than
  /// null, which counts as absent.
  void RequireAllRead() const;

  [[noreturn]] void Refuse(const char* key, const std::string& wanted,
                           const std::string& given) const;

 private:
  const nlohmann::json* Find(const char* key);  // null: absent or null

  nlohmann::json object_;
  std::string where_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace tarn
