#include "text/json_node.h"

#include <algorithm>

#include "core/text.h"
#include "text/bpe_tokenizer.h"
#include "text/tokenizer_form.h"

namespace tarn {

void RefuseJson(const std::string& path, const std::string& wanted,
                const std::string& given) {
  throw FormatError(StrCat(kTokenizerJson, path.empty() ? "" : ": ", path),
                    wanted, given);
}

std::string JsonNode::given() const {
  return value == nullptr ? "nothing" : JsonGiven(*value);
}

JsonNode JsonNode::operator[](const char* key) const {
  const auto found = value->find(key);
  return {found == value->end() ? nullptr : &*found,
          path.empty() ? key : path + "." + key};
}

JsonNode JsonNode::at(size_t i) const {
  return {&(*value)[i], StrCat(path, "[", i, "]")};
}

const std::string& JsonNode::text() const {
  if (value == nullptr || !value->is_string()) Refuse("a text");
  return value->get_ref<const std::string&>();
}

bool JsonNode::flag(bool absent) const {
  if (value == nullptr) return absent;
  if (!value->is_boolean()) Refuse("true or false");
  return value->get<bool>();
}

size_t JsonNode::array() const {
  if (value == nullptr || !value->is_array()) Refuse("an array");
  return value->size();
}

const std::string& JsonNode::type() const {
  if (null() || !value->is_object()) Refuse("an object with a type");
  return (*this)["type"].text();
}

int64_t JsonNode::whole(int64_t low, int64_t high) const {
  const auto number = value == nullptr ? std::nullopt : JsonInteger(*value);
  if (!number || *number < low || *number > high) {
    Refuse(StrCat("an integer from ", low, " to ", high));
  }
  return *number;
}

void CheckKeys(const JsonNode& node, std::initializer_list<const char*> keys) {
  if (node.value == nullptr || !node.value->is_object()) {
    node.Refuse("an object");
  }
  for (const auto& [key, value] : node.value->items()) {
    const auto known = [&k = key](const char* name) { return k == name; };
    if (std::none_of(keys.begin(), keys.end(), known)) {
      RefuseJson(node.path, "only supported keys", Quoted(key));
    }
  }
}

void CheckType(const JsonNode& node, const char* type) {
  const std::string wanted = StrCat("'", type, "'");
  if (node.null() || !node.value->is_object()) {
    node.Refuse("an object of type " + wanted);
  }
  const JsonNode found = node["type"];
  if (found.null() || found.text() != type) found.Refuse(wanted);
}

void WantNull(const JsonNode& node) {
  if (!node.null()) node.Refuse("null");
}

void CheckTokenizerRoot(const JsonNode& root) {
  CheckKeys(root,
            {"version", "truncation", "padding", "added_tokens", "normalizer",
             "pre_tokenizer", "post_processor", "decoder", "model"});
  const JsonNode version = root["version"];
  if (!version.null() && version.text() != "1.0") version.Refuse("'1.0'");
  WantNull(root["truncation"]);
  WantNull(root["padding"]);
}

int32_t IdOrNone(const nlohmann::json& value) {
  const auto id = JsonInteger(value);
  return id && *id >= 0 && *id < kMaxBpeTokens ? static_cast<int32_t>(*id) : -1;
}

std::string IdWanted() { return StrCat("an id from 0 to ", kMaxBpeTokens - 1); }

int32_t IdOf(const JsonNode& node) {
  const int32_t id = node.null() ? -1 : IdOrNone(*node.value);
  if (id < 0) node.Refuse(IdWanted());
  return id;
}

}  // namespace tarn
