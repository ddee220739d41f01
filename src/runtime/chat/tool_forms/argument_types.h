// The types that schemas of tools give to parameters, for forms that write
// values without them.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tarn {

/// A set of JSON's types; empty: any.
enum ArgumentTypes : uint32_t {
  kAnyArgument = 0,
  kTextArgument = 1,
  kIntegerArgument = 2,
  kNumberArgument = 4,
  kFlagArgument = 8,
  kObjectArgument = 16,
  kListArgument = 32,
  kNullArgument = 64,
};

/// The functions of a request's tools with the types of their parameters. What
/// is no schema is left out.
class ToolSchemas {
 public:
  ToolSchemas() = default;
  /// `tools`: a list of {"type": "function", "function": {"name", "parameters",
  /// ...}} or of what is under "function"; or null. O(tools).
  explicit ToolSchemas(const nlohmann::ordered_json& tools);

  bool Has(const std::string& function) const;
  /// kAnyArgument for a parameter that no schema has. O(log).
  uint32_t TypesOf(const std::string& function,
                   const std::string& parameter) const;

 private:
  std::map<std::string, std::map<std::string, uint32_t>> functions_;
};

/// The types that a schema allows by "type", or else by "enum", "const",
/// "anyOf" and "oneOf". O(schema), no recursion.
uint32_t TypesOfSchema(const nlohmann::ordered_json& schema);

/// A value that is written without its type, as a JSON text: what JSON or
/// Python writes in that way, if the types allow it, or else the text itself.
/// A text that a schema wants is taken as it is. O(bytes).
std::string TypedArgument(uint32_t types, std::string_view text);

/// A Python literal as a JSON text: JsonOfPython, unless only its text, or what
/// that text writes, is of an allowed type. Empty: not a literal.
std::string TypedPython(uint32_t types, std::string_view literal);

/// "a": the text as JSON, with U+FFFD for what is no UTF-8.
std::string JsonString(std::string_view text);

}  // namespace tarn
