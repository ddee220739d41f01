#include "core/json/json_object.h"

#include <utility>

#include "core/json.h"
#include "core/text.h"

namespace tarn {

using nlohmann::json;

JsonObject::JsonObject(const json& value, std::string where)
    : value_(&value), where_(std::move(where)) {
  if (!value.is_object()) {
    throw FormatError(where_.empty() ? "document" : where_, "an object",
                      JsonGiven(value));
  }
}

std::string JsonObject::At(const std::string& key) const {
  if (where_.empty()) return key;
  return where_.ends_with(": ") ? where_ + key : StrCat(where_, ".", key);
}

void JsonObject::WantKeys(const std::set<std::string>& known) const {
  for (const auto& [key, value] : value_->items()) {
    if (known.contains(key)) continue;
    throw FormatError(where_.empty() ? "document" : where_, "no other members",
                      Quoted(key.substr(0, 64)));
  }
}

const json* JsonObject::Find(const std::string& key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

const json& JsonObject::Value(const std::string& key) const {
  const json* found = Find(key);
  if (found == nullptr) throw FormatError(At(key), "a value", "none");
  return *found;
}

std::optional<std::string> JsonObject::FindText(const std::string& key) const {
  const json* found = Find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_string()) {
    throw FormatError(At(key), "a text", JsonGiven(*found));
  }
  return found->get<std::string>();
}

std::string JsonObject::Text(const std::string& key) const {
  Value(key);
  return *FindText(key);
}

std::optional<int64_t> JsonObject::FindInteger(const std::string& key,
                                               int64_t least,
                                               int64_t most) const {
  const json* found = Find(key);
  if (found == nullptr) return std::nullopt;
  const std::optional<int64_t> number =
      found->is_number() ? JsonInteger(*found) : std::nullopt;
  if (!number || *number < least || *number > most) {
    throw FormatError(At(key), StrCat("an integer from ", least, " to ", most),
                      JsonGiven(*found));
  }
  return number;
}

int64_t JsonObject::Integer(const std::string& key, int64_t least,
                            int64_t most) const {
  Value(key);
  return *FindInteger(key, least, most);
}

std::optional<double> JsonObject::FindReal(const std::string& key, double least,
                                           double most) const {
  const json* found = Find(key);
  if (found == nullptr) return std::nullopt;
  const double number = found->is_number() ? found->get<double>() : most;
  if (!found->is_number() || !(number >= least && number <= most)) {
    throw FormatError(At(key), StrCat("a number from ", least, " to ", most),
                      JsonGiven(*found));
  }
  return number;
}

std::optional<bool> JsonObject::FindFlag(const std::string& key) const {
  const json* found = Find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_boolean()) {
    throw FormatError(At(key), "true or false", JsonGiven(*found));
  }
  return found->get<bool>();
}

bool JsonObject::Flag(const std::string& key) const {
  Value(key);
  return *FindFlag(key);
}

const json* JsonObject::FindList(const std::string& key) const {
  const json* found = Find(key);
  if (found != nullptr && !found->is_array()) {
    throw FormatError(At(key), "a list", JsonGiven(*found));
  }
  return found;
}

const json& JsonObject::List(const std::string& key) const {
  Value(key);
  return *FindList(key);
}

std::optional<JsonObject> JsonObject::FindObject(const std::string& key) const {
  const json* found = Find(key);
  if (found == nullptr) return std::nullopt;
  return JsonObject(*found, At(key));
}

JsonObject JsonObject::Object(const std::string& key) const {
  return JsonObject(Value(key), At(key));
}

std::vector<int32_t> JsonObject::Integers(const std::string& key, int32_t least,
                                          int32_t most) const {
  std::vector<int32_t> numbers;
  for (const json& element : List(key)) {
    const std::optional<int64_t> number =
        element.is_number() ? JsonInteger(element) : std::nullopt;
    if (!number || *number < least || *number > most) {
      throw FormatError(ElementName(At(key), numbers.size()),
                        StrCat("an integer from ", least, " to ", most),
                        JsonGiven(element));
    }
    numbers.push_back(static_cast<int32_t>(*number));
  }
  return numbers;
}

std::string ElementName(const std::string& list, size_t index) {
  return StrCat(list, "[", index, "]");
}

}  // namespace tarn
