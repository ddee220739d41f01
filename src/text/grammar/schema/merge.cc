// allOf, and keywords next to $ref, anyOf and oneOf: one schema out of two.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "text/grammar/schema/schema_reader.h"

namespace tarn::grammar {
namespace {

SchemaJson Both(const SchemaJson& a, const SchemaJson& b) {
  if (a == b) return a;
  return SchemaJson{{"allOf", SchemaJson::array({a, b})}};
}

SchemaJson SharedTypes(const SchemaJson& a, const SchemaJson& b,
                       const std::string& pointer) {
  const auto list = [](const SchemaJson& type) {
    return type.is_array() ? type : SchemaJson::array({type});
  };
  SchemaJson shared = SchemaJson::array();
  const auto add = [&](const SchemaJson& type) {
    if (std::find(shared.begin(), shared.end(), type) == shared.end()) {
      shared.push_back(type);
    }
  };
  for (const SchemaJson& one : list(a)) {
    for (const SchemaJson& other : list(b)) {
      if (one == other) add(one);
      // Integers are numbers.
      if (one == "integer" && other == "number") add(one);
      if (one == "number" && other == "integer") add(other);
    }
  }
  if (shared.empty()) {
    RefuseKeyword(pointer, "type", "a type that all of the schemas allow",
                  "none");
  }
  return shared;
}

SchemaJson SharedValues(const SchemaJson& a, const SchemaJson& b,
                        const std::string& pointer) {
  SchemaJson shared = SchemaJson::array();
  if (a.is_array() && b.is_array()) {
    for (const SchemaJson& value : a) {
      if (std::find(b.begin(), b.end(), value) != b.end()) {
        shared.push_back(value);
      }
    }
  }
  if (shared.empty()) {
    RefuseKeyword(pointer, "enum", "a value that all of the schemas allow",
                  "none");
  }
  return shared;
}

SchemaJson AllNames(const SchemaJson& a, const SchemaJson& b) {
  if (!a.is_array() || !b.is_array()) return a;
  SchemaJson names = a;
  for (const SchemaJson& name : b) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  return names;
}

bool IsTrue(const SchemaJson& schema) { return schema == SchemaJson(true); }

// The other's properties are additional ones to a schema that has not got them.
void LimitProperties(const SchemaJson& limits, const SchemaJson& other,
                     SchemaJson& properties, const std::string& pointer) {
  if (!limits.contains("additionalProperties")) return;
  const SchemaJson& rule = limits["additionalProperties"];
  if (IsTrue(rule) || !other.contains("properties")) return;
  for (const auto& [name, schema] : other["properties"].items()) {
    if (limits.contains("properties") && limits["properties"].contains(name)) {
      continue;
    }
    if (rule.is_boolean()) {
      RefuseKeyword(pointer, "additionalProperties",
                    "properties that all of the schemas allow",
                    "'" + name + "'");
    }
    properties[name] = Both(properties[name], rule);
  }
}

SchemaJson MergedProperties(const SchemaJson& a, const SchemaJson& b,
                            const std::string& pointer) {
  SchemaJson properties = a.value("properties", SchemaJson::object());
  const SchemaJson others = b.value("properties", SchemaJson::object());
  for (const auto& [name, schema] : others.items()) {
    properties[name] =
        properties.contains(name) ? Both(properties[name], schema) : schema;
  }
  LimitProperties(a, b, properties, pointer);
  LimitProperties(b, a, properties, pointer);
  return properties;
}

// The value of a keyword that both have, with different values.
SchemaJson MergedKeyword(const std::string& keyword, const SchemaJson& a,
                         const SchemaJson& b, const std::string& pointer) {
  if (keyword == "type") return SharedTypes(a, b, pointer);
  if (keyword == "enum") return SharedValues(a, b, pointer);
  if (keyword == "required") return AllNames(a, b);
  if (keyword == "allOf" && a.is_array() && b.is_array()) {
    SchemaJson all = a;
    for (const SchemaJson& schema : b) all.push_back(schema);
    return all;
  }
  if (keyword == "items") return Both(a, b);
  if (keyword == "additionalProperties") {
    if (IsTrue(a)) return b;
    if (IsTrue(b) || a == SchemaJson(false)) return a;
    return b == SchemaJson(false) ? b : Both(a, b);
  }
  const bool numbers = a.is_number() && b.is_number();
  if (numbers &&
      (keyword.starts_with("min") || keyword == "exclusiveMinimum")) {
    return std::max(a, b);
  }
  if (numbers &&
      (keyword.starts_with("max") || keyword == "exclusiveMaximum")) {
    return std::min(a, b);
  }
  RefuseKeyword(pointer, keyword, "a keyword that two schemas can share",
                "'" + keyword + "' in both");
}

bool IsNote(const std::string& keyword) {
  static constexpr std::string_view kConstraints[] = {"additionalProperties",
                                                      "allOf",
                                                      "anyOf",
                                                      "const",
                                                      "enum",
                                                      "exclusiveMaximum",
                                                      "exclusiveMinimum",
                                                      "format",
                                                      "items",
                                                      "maxItems",
                                                      "maxLength",
                                                      "maximum",
                                                      "minItems",
                                                      "minLength",
                                                      "minimum",
                                                      "oneOf",
                                                      "pattern",
                                                      "prefixItems",
                                                      "properties",
                                                      "required",
                                                      "type"};
  return std::find(std::begin(kConstraints), std::end(kConstraints), keyword) ==
         std::end(kConstraints);
}

}  // namespace

SchemaJson MergeSchemas(const SchemaJson& a, const SchemaJson& b,
                        const std::string& pointer) {
  for (const SchemaJson* schema : {&a, &b}) {
    if (schema->is_boolean() && !schema->get<bool>()) {
      RefuseSchema(pointer, "a schema that some value matches", "false");
    }
    if (!schema->is_boolean() && !schema->is_object()) {
      RefuseSchema(pointer, "a schema", SchemaGiven(*schema));
    }
    if (schema->is_object() && schema->contains("properties") &&
        !(*schema)["properties"].is_object()) {
      RefuseKeyword(pointer, "properties", "an object",
                    SchemaGiven((*schema)["properties"]));
    }
  }
  if (a.is_boolean()) return b;
  if (b.is_boolean()) return a;
  SchemaJson merged = a;
  if (a.contains("properties") || b.contains("properties")) {
    merged["properties"] = MergedProperties(a, b, pointer);
  }
  for (const auto& [keyword, value] : b.items()) {
    if (keyword == "properties") continue;
    if (!merged.contains(keyword)) {
      merged[keyword] = value;
    } else if (!IsNote(keyword) && merged[keyword] != value) {
      // Items are those after the prefix of their own schema.
      const bool prefix =
          a.contains("prefixItems") || b.contains("prefixItems");
      if (keyword == "items" && prefix) {
        RefuseKeyword(pointer, keyword, "one of the schemas to have items",
                      "both, and prefixItems");
      }
      merged[keyword] = MergedKeyword(keyword, a[keyword], value, pointer);
    }
  }
  return merged;
}

}  // namespace tarn::grammar
