// The members of a JSON object from outside, read by name: each with its range,
// and with errors that say where in the document they are. Included by .cc
// files only, as core/json.h.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"

namespace tarn {

/// Refers to the value. Every method throws FormatError that names the member
/// ("request: messages[2].content") for a value of another type or out of
/// range; no text is taken for a number, no number for a flag. A Find method
/// gives nothing for a member that is absent or null.
class JsonObject {
 public:
  /// `where` names the object: "", or what stands before its members' names.
  JsonObject(const nlohmann::json& value, std::string where);

  /// The name of a member in errors.
  std::string At(const std::string& key) const;
  /// Throws for members with other names.
  void WantKeys(const std::set<std::string>& known) const;
  bool Has(const std::string& key) const { return Find(key) != nullptr; }
  /// Null where it is absent or null.
  const nlohmann::json* Find(const std::string& key) const;
  const nlohmann::json& Value(const std::string& key) const;

  std::string Text(const std::string& key) const;
  std::optional<std::string> FindText(const std::string& key) const;
  /// 256.0 is an integer.
  int64_t Integer(const std::string& key, int64_t least, int64_t most) const;
  std::optional<int64_t> FindInteger(const std::string& key, int64_t least,
                                     int64_t most) const;
  std::optional<double> FindReal(const std::string& key, double least,
                                 double most) const;
  bool Flag(const std::string& key) const;
  std::optional<bool> FindFlag(const std::string& key) const;
  const nlohmann::json& List(const std::string& key) const;
  const nlohmann::json* FindList(const std::string& key) const;
  JsonObject Object(const std::string& key) const;
  std::optional<JsonObject> FindObject(const std::string& key) const;
  /// A list of integers of a range, as token ids are.
  std::vector<int32_t> Integers(const std::string& key, int32_t least,
                                int32_t most) const;

  const nlohmann::json& value() const { return *value_; }

 private:
  const nlohmann::json* value_;
  std::string where_;
};

/// "messages[3]": an element of a list that is called `list`.
std::string ElementName(const std::string& list, size_t index);

}  // namespace tarn
