#include "runtime/chat/tool_forms/argument_types.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/json.h"
#include "runtime/chat/tool_forms/python_values.h"
#include "runtime/chat/tool_forms/reader.h"
#include "text/utf8.h"

namespace tarn {
namespace {

using Schema = nlohmann::ordered_json;

constexpr char kWhereArgument[] = "argument";

const Schema* MemberOf(const Schema& value, const char* key) {
  if (!value.is_object()) return nullptr;
  const auto found = value.find(key);
  return found == value.end() ? nullptr : &*found;
}

uint32_t TypeOfWord(const Schema& word) {
  constexpr std::pair<const char*, uint32_t> kWords[] = {
      {"string", kTextArgument},   {"integer", kIntegerArgument},
      {"number", kNumberArgument}, {"boolean", kFlagArgument},
      {"object", kObjectArgument}, {"array", kListArgument},
      {"null", kNullArgument}};
  for (const auto& [name, type] : kWords) {
    if (word == name) return type;
  }
  return kAnyArgument;
}

// All types that a value is of.
template <typename Value>
uint32_t TypesOfValue(const Value& value) {
  if (value.is_string()) return kTextArgument;
  if (value.is_boolean()) return kFlagArgument;
  if (value.is_object()) return kObjectArgument;
  if (value.is_array()) return kListArgument;
  if (value.is_null()) return kNullArgument;
  const nlohmann::json number = value;
  return JsonInteger(number) ? kIntegerArgument | kNumberArgument
                             : uint32_t{kNumberArgument};
}

// A JSON text that is no string, with its types.
struct PlainJson {
  std::string text;
  uint32_t types;
};

std::optional<PlainJson> CheckedJson(std::string text) {
  const auto value = ParseStrictJson(text, kWhereArgument, text.size());
  if (!value.ok() || value.value().is_string()) return std::nullopt;
  const uint32_t types = TypesOfValue(value.value());
  return PlainJson{std::move(text), types};
}

// What JSON or Python writes so. A string stands for itself: the quotes are
// part of a value that is written without quotes.
std::optional<PlainJson> PlainJsonOf(std::string_view text) {
  const std::string_view trimmed = Trimmed(text);
  if (auto json = CheckedJson(std::string(trimmed))) return json;
  if (trimmed.starts_with('(')) return std::nullopt;  // prose for the most part
  auto python = JsonOfPython(trimmed);
  return python ? CheckedJson(*std::move(python)) : std::nullopt;
}

}  // namespace

uint32_t TypesOfSchema(const Schema& schema) {
  uint32_t types = 0;
  std::vector<const Schema*> open = {&schema};
  while (!open.empty()) {
    const Schema& one = *open.back();
    open.pop_back();
    if (const Schema* type = MemberOf(one, "type")) {
      if (type->is_array()) {
        for (const Schema& word : *type) types |= TypeOfWord(word);
      } else {
        types |= TypeOfWord(*type);
      }
      continue;
    }
    if (const Schema* value = MemberOf(one, "const")) {
      types |= TypesOfValue(*value);
    }
    for (const char* key : {"enum", "anyOf", "oneOf"}) {
      const Schema* list = MemberOf(one, key);
      if (list == nullptr || !list->is_array()) continue;
      for (const Schema& element : *list) {
        if (key[0] == 'e') {
          types |= TypesOfValue(element);
        } else {
          open.push_back(&element);
        }
      }
    }
  }
  return types;
}

ToolSchemas::ToolSchemas(const Schema& tools) {
  if (!tools.is_array()) return;
  for (const Schema& tool : tools) {
    const Schema* inner = MemberOf(tool, "function");
    const Schema& function =
        inner != nullptr && inner->is_object() ? *inner : tool;
    const Schema* name = MemberOf(function, "name");
    if (name == nullptr || !name->is_string()) continue;
    auto& parameters = functions_[name->get<std::string>()];
    const Schema* schema = MemberOf(function, "parameters");
    const Schema* properties =
        schema == nullptr ? nullptr : MemberOf(*schema, "properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, value] : properties->items()) {
      parameters[key] = TypesOfSchema(value);
    }
  }
}

bool ToolSchemas::Has(const std::string& function) const {
  return functions_.contains(function);
}

uint32_t ToolSchemas::TypesOf(const std::string& function,
                              const std::string& parameter) const {
  const auto found = functions_.find(function);
  if (found == functions_.end()) return kAnyArgument;
  const auto types = found->second.find(parameter);
  return types == found->second.end() ? uint32_t{kAnyArgument} : types->second;
}

std::string JsonString(std::string_view text) {
  return nlohmann::json(ReplaceInvalidUtf8(text)).dump();
}

std::string TypedArgument(uint32_t types, std::string_view text) {
  const bool wants_text = (types & kTextArgument) != 0;
  if (types == kTextArgument) return JsonString(text);
  const std::optional<PlainJson> json = PlainJsonOf(text);
  if (!json) return JsonString(text);
  // Of the other types only null is not a text that one may want to write.
  const uint32_t allowed = wants_text ? types & kNullArgument : types;
  if (types == kAnyArgument || (json->types & allowed) != 0) return json->text;
  return JsonString(text);
}

std::string TypedPython(uint32_t types, std::string_view literal) {
  const std::optional<std::string> json = JsonOfPython(literal);
  if (!json) return "";
  const auto value = ParseStrictJson(*json, kWhereArgument, json->size());
  if (!value.ok()) return "";
  if (types == kAnyArgument || (TypesOfValue(value.value()) & types) != 0) {
    return *json;
  }
  if (value.value().is_string()) {
    return TypedArgument(types, value.value().get_ref<const std::string&>());
  }
  if ((types & kTextArgument) != 0 && !value.value().is_null()) {
    return JsonString(Trimmed(literal));
  }
  return *json;
}

}  // namespace tarn
