#include "text/grammar/schema/schema_reader.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "text/grammar/limits.h"
#include "text/grammar/readers.h"

namespace tarn::grammar {
namespace {

// Schemas that are read, alternatives and merges written out.
constexpr int64_t kMaxSchemaWork = 10'000;
constexpr int64_t kMaxSchemaNesting = 64;

// Keywords that say nothing of what is valid.
const std::set<std::string_view>& Annotations() {
  static const std::set<std::string_view> words{
      "$anchor",       "$comment",      "$defs",           "$id",
      "$schema",       "$vocabulary",   "contentEncoding", "contentMediaType",
      "contentSchema", "default",       "definitions",     "deprecated",
      "description",   "discriminator", "example",         "examples",
      "readOnly",      "title",         "writeOnly"};
  return words;
}

// Keywords that are read, and the type that they speak of, if one.
const std::map<std::string_view, std::string_view>& Keywords() {
  static const std::map<std::string_view, std::string_view> words{
      {"$ref", ""},
      {"additionalProperties", "object"},
      {"allOf", ""},
      {"anyOf", ""},
      {"const", ""},
      {"enum", ""},
      {"exclusiveMaximum", "number"},
      {"exclusiveMinimum", "number"},
      {"format", "string"},
      {"items", "array"},
      {"maxItems", "array"},
      {"maxLength", "string"},
      {"maximum", "number"},
      {"minItems", "array"},
      {"minLength", "string"},
      {"minimum", "number"},
      {"oneOf", ""},
      {"pattern", "string"},
      {"prefixItems", "array"},
      {"properties", "object"},
      {"required", "object"},
      {"type", ""}};
  return words;
}

// Other keywords whose value lets them say nothing.
bool SaysNothing(const std::string& keyword, const SchemaJson& value) {
  if (keyword == "uniqueItems") return value == SchemaJson(false);
  if (keyword == "minProperties") return value == SchemaJson(0);
  if (keyword == "patternProperties" || keyword == "dependentRequired" ||
      keyword == "dependentSchemas") {
    return value == SchemaJson::object();
  }
  return keyword.starts_with("x-");
}

bool IsConstraint(const std::string& keyword) {
  return Keywords().contains(keyword);
}

constexpr std::string_view kTypes[] = {"object",  "array",   "string", "number",
                                       "integer", "boolean", "null"};

}  // namespace

void RefuseSchema(const std::string& pointer, const std::string& wanted,
                  const std::string& given) {
  throw FormatError("schema: " + pointer, wanted, given);
}

void RefuseKeyword(const std::string& pointer, const std::string& keyword,
                   const std::string& wanted, const std::string& given) {
  RefuseSchema(SchemaPointer(pointer, keyword), wanted, given);
}

std::string SchemaPointer(const std::string& pointer, const std::string& key) {
  std::string out = pointer + "/";
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

std::string SchemaGiven(const SchemaJson& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  const std::string text = value.dump();
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

RuleId SchemaReader::Read() {
  const RuleId root = source_.AddRule("#");
  source_.rules[root].where = "schema: #";
  references_["#"] = root;
  const ExpressionId body = Schema(document_, "#");
  source_.rules[root].body = body;
  while (!pending_.empty()) {
    const std::string target = std::move(pending_.back());
    pending_.pop_back();
    const ExpressionId rule = Schema(Target(target, target), target);
    source_.rules[references_[target]].body = rule;
  }
  return root;
}

void SchemaReader::Work(const std::string& pointer, int64_t amount) {
  work_ += amount;
  if (work_ > kMaxSchemaWork) {
    RefuseSchema(pointer,
                 StrCat("at most ", kMaxSchemaWork,
                        " schemas with alternatives and merges written out"),
                 "more");
  }
}

void SchemaReader::CheckKeywords(const SchemaJson& schema,
                                 const std::string& pointer) {
  for (const auto& [keyword, value] : schema.items()) {
    if (Annotations().contains(keyword) || IsConstraint(keyword) ||
        SaysNothing(keyword, value)) {
      continue;
    }
    RefuseKeyword(pointer, keyword, "a keyword that grammars support",
                  "'" + keyword + "'");
  }
}

const SchemaJson& SchemaReader::Target(const std::string& pointer,
                                       const std::string& target) const {
  const auto refuse = [&] {
    RefuseSchema(pointer, "$ref to a place in this schema, such as #/$defs/a",
                 SchemaGiven(target));
  };
  if (target.empty() || target[0] != '#' ||
      (target.size() > 1 && target[1] != '/')) {
    refuse();
  }
  const SchemaJson* at = &document_;
  for (size_t begin = 2; begin <= target.size();) {
    const size_t end = std::min(target.find('/', begin), target.size());
    std::string key;
    for (size_t i = begin; i < end; ++i) {
      const std::string_view escape = std::string_view(target).substr(i, 2);
      if (escape == "~0" || escape == "~1") {
        key += escape == "~0" ? '~' : '/';
        ++i;
      } else {
        key += target[i];
      }
    }
    if (at->is_object() && at->contains(key)) {
      at = &(*at)[key];
    } else if (at->is_array() && !key.empty() && key.size() < 6 &&
               key.find_first_not_of("0123456789") == key.npos &&
               std::stoul(key) < at->size()) {
      at = &(*at)[std::stoul(key)];
    } else {
      refuse();
    }
    begin = end + 1;
  }
  return *at;
}

SchemaJson SchemaReader::Resolved(SchemaJson schema,
                                  const std::string& pointer) {
  std::vector<SchemaJson> beside;  // what stands next to each $ref
  while (schema.is_object() && schema.contains("$ref")) {
    Work(pointer, 1);
    if (!schema["$ref"].is_string()) {
      RefuseKeyword(pointer, "$ref", "a text", SchemaGiven(schema["$ref"]));
    }
    const SchemaJson& found =
        Target(pointer, schema["$ref"].get<std::string>());
    schema.erase("$ref");
    if (!schema.empty()) beside.push_back(std::move(schema));
    schema = found;
  }
  for (const SchemaJson& rest : beside) {
    schema = MergeSchemas(schema, rest, pointer);
  }
  return schema;
}

ExpressionId SchemaReader::Reference(const std::string& pointer,
                                     const std::string& target) {
  Target(pointer, target);
  const auto [found, added] = references_.try_emplace(target, 0);
  if (added) {
    found->second = source_.AddRule(target);
    source_.rules[found->second].where = "schema: " + target;
    pending_.push_back(target);
  }
  return source_.Call(found->second);
}

ExpressionId SchemaReader::Schema(const SchemaJson& schema,
                                  const std::string& pointer) {
  Work(pointer, 1);
  if (schema.is_boolean()) {
    if (schema.get<bool>()) return texts_.Value();
    RefuseSchema(pointer, "a schema that some value matches", "false");
  }
  if (!schema.is_object()) {
    RefuseSchema(pointer, "a schema", SchemaGiven(schema));
  }
  if (nesting_ >= kMaxSchemaNesting) {
    RefuseSchema(pointer,
                 StrCat("at most ", kMaxSchemaNesting, " levels of schemas"),
                 "more");
  }
  ++nesting_;
  CheckKeywords(schema, pointer);
  ExpressionId made = -1;
  bool other_constraints = false;
  for (const auto& [keyword, value] : schema.items()) {
    other_constraints |= keyword != "$ref" && IsConstraint(keyword);
  }
  if (schema.contains("$ref")) {
    if (!other_constraints && schema["$ref"].is_string()) {
      made = Reference(pointer, schema["$ref"].get<std::string>());
    } else {
      made = Schema(Resolved(schema, pointer), pointer);
    }
  } else if (schema.contains("allOf")) {
    SchemaJson merged = schema;
    merged.erase("allOf");
    const SchemaJson& parts = schema["allOf"];
    if (!parts.is_array() || parts.empty()) {
      RefuseKeyword(pointer, "allOf", "an array of schemas",
                    SchemaGiven(parts));
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string place =
          SchemaPointer(SchemaPointer(pointer, "allOf"), std::to_string(i));
      Work(place, 1);
      if (parts[i].is_object()) CheckKeywords(parts[i], place);
      merged = MergeSchemas(merged, Resolved(parts[i], place), place);
    }
    made = Schema(merged, pointer);
  } else if (schema.contains("anyOf")) {
    made = Alternatives(schema, "anyOf", pointer);
  } else if (schema.contains("oneOf")) {
    made = Alternatives(schema, "oneOf", pointer);
  } else if (schema.contains("enum") || schema.contains("const")) {
    made = Values(schema, pointer);
  } else {
    made = SchemaOfTypes(schema, pointer);
  }
  --nesting_;
  return made;
}

ExpressionId SchemaReader::Alternatives(const SchemaJson& schema,
                                        const char* keyword,
                                        const std::string& pointer) {
  const SchemaJson& alternatives = schema[keyword];
  const std::string place = SchemaPointer(pointer, keyword);
  if (!alternatives.is_array() || alternatives.empty()) {
    RefuseSchema(place, "an array of schemas", SchemaGiven(alternatives));
  }
  SchemaJson rest = schema;
  rest.erase(keyword);
  bool constraints = false;
  for (const auto& [key, value] : rest.items())
    constraints |= IsConstraint(key);
  std::vector<ExpressionId> ways;
  for (size_t i = 0; i < alternatives.size(); ++i) {
    const std::string here = SchemaPointer(place, std::to_string(i));
    if (keyword == std::string_view("oneOf")) {
      for (size_t j = 0; j < i; ++j) {
        if (Disjoint(alternatives[j], alternatives[i], here, 4)) continue;
        RefuseSchema(here,
                     StrCat("alternatives of oneOf that exclude each other by "
                            "type, constants or required properties (anyOf "
                            "needs none of these)"),
                     StrCat("one that alternative ", j, " may overlap"));
      }
    }
    if (constraints) {
      if (alternatives[i].is_object()) CheckKeywords(alternatives[i], here);
      ways.push_back(Schema(
          MergeSchemas(rest, Resolved(alternatives[i], here), here), here));
    } else {
      ways.push_back(Schema(alternatives[i], here));
    }
  }
  return source_.Choice(std::move(ways));
}

namespace {

std::vector<std::string> TypeNames(const SchemaJson& schema,
                                   const std::string& pointer) {
  std::vector<std::string> names;
  const SchemaJson& type = schema["type"];
  const auto add = [&](const SchemaJson& name) {
    if (!name.is_string() ||
        std::find(std::begin(kTypes), std::end(kTypes),
                  name.get<std::string>()) == std::end(kTypes)) {
      RefuseKeyword(pointer, "type", "a type of JSON schema",
                    SchemaGiven(name));
    }
    names.push_back(name.get<std::string>());
  };
  if (!type.is_array()) {
    add(type);
  } else {
    for (const SchemaJson& name : type) add(name);
    if (type.empty()) RefuseKeyword(pointer, "type", "a type", "none");
  }
  return names;
}

bool HasType(const SchemaJson& value, const std::vector<std::string>& types) {
  for (const std::string& type : types) {
    if ((type == "object" && value.is_object()) ||
        (type == "array" && value.is_array()) ||
        (type == "string" && value.is_string()) ||
        (type == "number" && value.is_number()) ||
        (type == "integer" && value.is_number() &&
         (value.is_number_integer() ||
          JsonInteger(nlohmann::json(value)).has_value())) ||
        (type == "boolean" && value.is_boolean()) ||
        (type == "null" && value.is_null())) {
      return true;
    }
  }
  return false;
}

}  // namespace

// enum, const, or what both have.
ExpressionId SchemaReader::Values(const SchemaJson& schema,
                                  const std::string& pointer) {
  for (const auto& [keyword, value] : schema.items()) {
    if (!IsConstraint(keyword) || keyword == "enum" || keyword == "const" ||
        keyword == "type") {
      continue;
    }
    RefuseKeyword(pointer, keyword, "no other keyword next to enum and const",
                  "'" + keyword + "'");
  }
  std::vector<SchemaJson> values;
  if (schema.contains("enum")) {
    if (!schema["enum"].is_array()) {
      RefuseKeyword(pointer, "enum", "an array", SchemaGiven(schema["enum"]));
    }
    for (const SchemaJson& value : schema["enum"]) values.push_back(value);
  }
  if (schema.contains("const")) {
    const bool listed =
        values.empty() || std::find(values.begin(), values.end(),
                                    schema["const"]) != values.end();
    values.clear();
    if (listed) values.push_back(schema["const"]);
  }
  if (schema.contains("type")) {
    const std::vector<std::string> types = TypeNames(schema, pointer);
    std::erase_if(values,
                  [&](const SchemaJson& v) { return !HasType(v, types); });
  }
  if (values.empty()) {
    RefuseSchema(pointer, "a value that enum, const and type allow", "none");
  }
  std::vector<ExpressionId> ways;
  for (const SchemaJson& value : values) {
    ways.push_back(source_.Text(value.dump()));
  }
  return source_.Choice(std::move(ways));
}

ExpressionId SchemaReader::SchemaOfTypes(const SchemaJson& schema,
                                         const std::string& pointer) {
  std::vector<std::string> types;
  if (schema.contains("type")) {
    types = TypeNames(schema, pointer);
  } else {
    // Narrower than the standard, where these keywords let other types pass.
    std::set<std::string_view> implied;
    for (const auto& [keyword, value] : schema.items()) {
      const auto row = Keywords().find(keyword);
      if (row != Keywords().end() && !row->second.empty()) {
        implied.insert(row->second);
      }
    }
    if (implied.empty()) return texts_.Value();
    types.assign(implied.begin(), implied.end());
  }
  std::vector<ExpressionId> ways;
  for (const std::string& type : types) {
    if (type == "object") {
      ways.push_back(ObjectSchema(schema, pointer));
    } else if (type == "array") {
      ways.push_back(ArraySchema(schema, pointer));
    } else if (type == "string") {
      ways.push_back(StringSchema(schema, pointer));
    } else if (type == "boolean") {
      ways.push_back(texts_.Regex("true|false"));
    } else if (type == "null") {
      ways.push_back(source_.Text("null"));
    } else {
      ways.push_back(NumberSchema(schema, type == "integer", pointer));
    }
  }
  return source_.Choice(std::move(ways));
}

namespace {

// Types that a schema allows as the standard has it; all where it is silent.
std::set<std::string> AllowedTypes(const SchemaJson& schema,
                                   const std::string& pointer) {
  std::set<std::string> types;
  if (schema.contains("type")) {
    for (std::string& name : TypeNames(schema, pointer)) {
      types.insert(std::move(name));
    }
    if (types.contains("number")) types.insert("integer");
  } else {
    types.insert(std::begin(kTypes), std::end(kTypes));
  }
  return types;
}

// The values of enum or const; nothing where there is neither.
std::optional<std::vector<SchemaJson>> ListedValues(const SchemaJson& schema) {
  if (schema.contains("const")) return std::vector{schema["const"]};
  if (!schema.contains("enum") || !schema["enum"].is_array()) {
    return std::nullopt;
  }
  return std::vector<SchemaJson>(schema["enum"].begin(), schema["enum"].end());
}

bool Requires(const SchemaJson& schema, const std::string& name) {
  if (!schema.contains("required") || !schema["required"].is_array()) {
    return false;
  }
  const SchemaJson& names = schema["required"];
  return std::find(names.begin(), names.end(), SchemaJson(name)) != names.end();
}

}  // namespace

bool SchemaReader::Disjoint(const SchemaJson& a, const SchemaJson& b,
                            const std::string& pointer, int levels) {
  Work(pointer, 1);
  if (levels == 0) return false;
  const SchemaJson one = Resolved(a, pointer), other = Resolved(b, pointer);
  if (!one.is_object() || !other.is_object()) return false;
  const auto one_values = ListedValues(one), other_values = ListedValues(other);
  if (one_values && other_values) {
    return std::none_of(
        one_values->begin(), one_values->end(), [&](const SchemaJson& value) {
          return std::find(other_values->begin(), other_values->end(), value) !=
                 other_values->end();
        });
  }
  const auto types = [&](const SchemaJson& schema) {
    const std::set<std::string> allowed = AllowedTypes(schema, pointer);
    return std::vector<std::string>(allowed.begin(), allowed.end());
  };
  const std::vector<std::string> one_types = types(one),
                                 other_types = types(other);
  const auto no_value_of = [](const std::vector<SchemaJson>& values,
                              const std::vector<std::string>& allowed) {
    return std::none_of(values.begin(), values.end(), [&](const SchemaJson& v) {
      return HasType(v, allowed);
    });
  };
  if (one_values) return no_value_of(*one_values, other_types);
  if (other_values) return no_value_of(*other_values, one_types);
  std::vector<std::string> shared;
  std::set_intersection(one_types.begin(), one_types.end(), other_types.begin(),
                        other_types.end(), std::back_inserter(shared));
  if (shared.empty()) return true;
  if (shared != std::vector<std::string>{"object"}) return false;
  const auto by_property = [&](const SchemaJson& x, const SchemaJson& y) {
    if (!x.contains("properties") || !x["properties"].is_object()) return false;
    for (const auto& [name, schema] : x["properties"].items()) {
      if (!Requires(x, name)) continue;
      const bool listed = y.contains("properties") &&
                          y["properties"].is_object() &&
                          y["properties"].contains(name);
      if (!listed) {
        if (y.contains("additionalProperties") &&
            y["additionalProperties"] == SchemaJson(false)) {
          return true;
        }
        continue;
      }
      if (Requires(y, name) &&
          Disjoint(schema, y["properties"][name], pointer, levels - 1)) {
        return true;
      }
    }
    return false;
  };
  return by_property(one, other) || by_property(other, one);
}

Source ReadJsonSchema(std::string_view schema, bool white_space) {
  // Strict first; then again for the order of the keys.
  const Result<nlohmann::json> strict =
      ParseStrictJson(schema, "schema", kMaxGrammarBytes);
  if (!strict.ok()) Throw(strict.error());
  Source source;
  JsonTexts texts(source, white_space);
  SchemaReader(SchemaJson::parse(schema), source, texts).Read();
  return source;
}

}  // namespace tarn::grammar
