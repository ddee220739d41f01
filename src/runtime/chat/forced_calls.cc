#include "runtime/chat/forced_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "runtime/chat/thinking.h"
#include "runtime/chat/tool_forms/argument_types.h"
#include "runtime/chat/tool_forms/form.h"
#include "runtime/chat/tool_forms/json_extent.h"
#include "runtime/chat/tool_forms/reader.h"

namespace tarn {
namespace {

using CallJson = nlohmann::ordered_json;

// Texts are compared with tokens of a vocabulary, which need not be UTF-8.
CallJson PartOf(std::string_view text) { return std::string(text); }

// A schema without what only readers need: the source of a grammar is short.
CallJson WithoutNotes(CallJson schema) {
  if (!schema.is_object()) return schema;
  for (const char* note : {"description", "title", "examples"}) {
    schema.erase(note);
  }
  for (const char* key : {"properties", "$defs", "definitions"}) {
    const auto found = schema.find(key);
    if (found == schema.end() || !found->is_object()) continue;
    for (auto at = found->begin(); at != found->end(); ++at) {
      at.value() = WithoutNotes(std::move(at.value()));
    }
  }
  for (const char* key : {"items", "additionalProperties"}) {
    const auto found = schema.find(key);
    if (found != schema.end()) *found = WithoutNotes(std::move(*found));
  }
  for (const char* key : {"anyOf", "oneOf", "allOf", "prefixItems"}) {
    const auto found = schema.find(key);
    if (found == schema.end() || !found->is_array()) continue;
    for (CallJson& value : *found) value = WithoutNotes(std::move(value));
  }
  return schema;
}

// A function of the tools, as what is written needs it.
struct Tool {
  std::string name;
  CallJson parameters;  // the schema of an object
  std::string where;    // of the parameters, for errors
};

Tool ToolOf(const CallJson& value, const std::string& where) {
  const bool inner = value.is_object() && value.contains("function") &&
                     value["function"].is_object();
  const CallJson& function = inner ? value["function"] : value;
  const std::string place = inner ? where + ".function" : where;
  Tool tool;
  if (function.is_object() && function.contains("name") &&
      function["name"].is_string()) {
    tool.name = function["name"].get<std::string>();
  }
  if (!IsToolName(tool.name)) {
    throw FormatError(place + ".name",
                      "a name without spaces, quotes and brackets",
                      Quoted(tool.name));
  }
  tool.where = place + ".parameters";
  const bool given =
      function.contains("parameters") && !function["parameters"].is_null();
  tool.parameters = given ? WithoutNotes(function["parameters"])
                          : CallJson{{"type", "object"},
                                     {"properties", CallJson::object()},
                                     {"additionalProperties", false}};
  if (!tool.parameters.is_object()) {
    throw FormatError(tool.where, "a schema of an object",
                      tool.parameters.dump());
  }
  if (!tool.parameters.contains("type")) tool.parameters["type"] = "object";
  if (tool.parameters["type"] != "object") {
    throw FormatError(tool.where + ".type", "object",
                      tool.parameters["type"].dump());
  }
  return tool;
}

// What a schema of a text may not have where the text is written without
// quotes: its grammar is that of JSON texts.
void RefuseBoundText(const CallJson& schema, const std::string& where) {
  for (const char* key : {"pattern", "format", "minLength", "maxLength",
                          "allOf", "$ref", "not"}) {
    if (!schema.contains(key)) continue;
    throw FormatError(where + "." + key,
                      "a text without bounds, as the model's template writes "
                      "texts without quotes",
                      schema[key].dump());
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    if (!schema.contains(key) || !schema[key].is_array()) continue;
    for (size_t i = 0; i < schema[key].size(); ++i) {
      const CallJson& one = schema[key][i];
      const uint32_t types = TypesOfSchema(one);
      if ((types & kTextArgument) == 0 && types != kAnyArgument) continue;
      const std::string place = StrCat(where, ".", key, "[", i, "]");
      for (const char* listed : {"enum", "const"}) {
        if (one.is_object() && one.contains(listed)) {
          throw FormatError(place + "." + listed, "any text",
                            one[listed].dump());
        }
      }
      if (one.is_object()) RefuseBoundText(one, place);
    }
  }
}

class CallWriter {
 public:
  explicit CallWriter(const ToolCallForm& form) : form_(form) {}

  // One call; first: of the answer.
  CallJson Call(const Tool& tool, bool first) const {
    CallJson parts = CallJson::array({PartOf(form_.written.before)});
    switch (form_.body) {
      case ToolCallForm::Body::kObjects:
        parts.push_back("{\"name\": " + JsonString(tool.name) + ", \"" +
                        std::string(form_.objects.arguments) + "\": ");
        parts.push_back(SchemaPart(tool.parameters, tool.where));
        parts.push_back("}");
        break;
      case ToolCallForm::Body::kNamed:
        parts.push_back(tool.name);
        if (form_.named.indexed && first) parts.push_back(":0");
        if (form_.named.indexed && !first) {
          parts.push_back({{"regex", ":[1-9][0-9]{0,2}"}});
        }
        parts.push_back(PartOf(form_.written.middle));
        parts.push_back(SchemaPart(tool.parameters, tool.where));
        break;
      case ToolCallForm::Body::kTagged:
      case ToolCallForm::Body::kPythonic:
        parts.push_back(tool.name);
        parts.push_back(PartOf(form_.written.middle));
        parts.push_back(Members(tool));
        break;
    }
    parts.push_back(PartOf(form_.written.after));
    return parts;
  }

 private:
  static CallJson SchemaPart(const CallJson& schema, const std::string& where) {
    return {{"schema", schema}, {"where", where}};
  }

  // Parameters one by one, in the order of the schema.
  CallJson Members(const Tool& tool) const {
    const CallJson& schema = tool.parameters;
    CallJson shared = CallJson::object();  // what a $ref may name
    for (const auto& [key, value] : schema.items()) {
      if (key == "$defs" || key == "definitions") shared[key] = value;
      for (const char* other : {"$ref", "allOf", "anyOf", "oneOf", "enum",
                                "const", "not", "minProperties"}) {
        if (key != other) continue;
        throw FormatError(tool.where + "." + key,
                          "properties, as the model's template writes "
                          "parameters one by one",
                          value.dump());
      }
    }
    std::vector<std::string> required;
    if (schema.contains("required") && schema["required"].is_array()) {
      for (const CallJson& name : schema["required"]) {
        if (name.is_string()) required.push_back(name.get<std::string>());
      }
    }
    const CallJson none = CallJson::object();
    const bool listed =
        schema.contains("properties") && schema["properties"].is_object();
    CallJson properties = listed ? schema["properties"] : none;
    for (const std::string& name : required) {
      if (!properties.contains(name)) properties[name] = none;
    }
    CallJson members = CallJson::array();
    for (const auto& [name, value] : properties.items()) {
      const std::string where = tool.where + ".properties." + name;
      CallJson one = value.is_object() ? value : none;
      for (const auto& [key, defined] : shared.items()) one[key] = defined;
      const bool is_required =
          std::find(required.begin(), required.end(), name) != required.end();
      members.push_back(CallJson::array(
          {is_required, form_.body == ToolCallForm::Body::kTagged
                            ? TaggedMember(name, one, where)
                            : PythonMember(name, one, where)}));
    }
    CallJson part = {{"members", std::move(members)}};
    if (form_.body == ToolCallForm::Body::kPythonic) part["between"] = ", ";
    return part;
  }

  static CallJson PythonMember(const std::string& name, const CallJson& schema,
                               const std::string& where) {
    const bool word =
        !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
          return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                 (c >= 'A' && c <= 'Z');
        });
    if (!word) {
      throw FormatError(where, "a name of letters, digits and _", Quoted(name));
    }
    return CallJson::array({name + "=", SchemaPart(schema, where)});
  }

  CallJson TaggedMember(const std::string& name, const CallJson& schema,
                        const std::string& where) const {
    const ToolCallForm::Tagged& tags = form_.tagged;
    if (name.empty() || name.size() > kMaxToolNameBytes ||
        name.find_first_of("<>") != name.npos || Trimmed(name) != name) {
      throw FormatError(where, "a name without < and >", Quoted(name));
    }
    const std::string line = tags.own_lines ? "\n" : "";
    std::string begin =
        std::string(tags.key) + name + std::string(tags.key_end);
    if (!tags.value.empty()) begin += "\n" + std::string(tags.value);
    const std::string end = std::string(tags.value_end);
    CallJson parts = CallJson::array({begin + line});
    const CallJson value = TaggedValue(schema, where);
    if (value.is_null()) {  // any text, which its end tag ends
      parts.push_back({{"until", end}});
      parts.push_back("\n");
    } else {
      parts.push_back(value);
      parts.push_back(line + end + "\n");
    }
    return parts;
  }

  // A value without quotes; null: any text.
  CallJson TaggedValue(const CallJson& schema, const std::string& where) const {
    const uint32_t types = TypesOfSchema(schema);
    if (types == kAnyArgument || (types & kTextArgument) != 0) {
      RefuseBoundText(schema, where);
    }
    if (types == kAnyArgument) return nullptr;
    if ((types & kTextArgument) == 0) return SchemaPart(schema, where);
    const bool any = !schema.contains("enum") && !schema.contains("const");
    if (any) return nullptr;
    // Of a value that may be a text only null is not read as one.
    CallJson ways = CallJson::array();
    const auto add = [&](const CallJson& one) {
      if (one.is_null()) ways.push_back("null");
      if (!one.is_string()) return;
      const auto& text = one.get_ref<const std::string&>();
      const bool clear = text.find(form_.tagged.value_end) == text.npos;
      const bool null = (types & kNullArgument) != 0 && IsNullWord(text);
      if (clear && !null) ways.push_back(text);
    };
    if (schema.contains("const")) {
      add(schema["const"]);
    } else if (schema["enum"].is_array()) {
      for (const CallJson& one : schema["enum"]) add(one);
    }
    if (ways.empty()) {
      throw FormatError(where, "a text that can be written without quotes",
                        "none");
    }
    return {{"any", std::move(ways)}};
  }

  static bool IsNullWord(std::string_view text) {
    const std::string_view word = Trimmed(text);
    return word == "null" || word == "None";
  }

  const ToolCallForm& form_;
};

// Texts of the form that a vocabulary may have as one token.
CallJson MarksOf(const ToolCallForm& form) {
  CallJson marks = CallJson::array({kThinkingEnd});
  const auto add = [&](std::string_view text) {
    if (!text.empty()) marks.push_back(PartOf(text));
  };
  for (const std::string_view mark : form.marks) add(mark);
  add(form.end);
  const ToolCallForm::Named& named = form.named;
  for (const std::string_view text :
       {named.call, named.arguments, named.after[0], named.after[1],
        named.name_after}) {
    add(text);
  }
  const ToolCallForm::Tagged& tagged = form.tagged;
  for (const std::string_view text :
       {tagged.function, tagged.key, tagged.key_end, tagged.value,
        tagged.value_end, tagged.call_end}) {
    add(text);
  }
  return marks;
}

}  // namespace

std::string ForcedCallsGrammar(const ToolCallForm& form, const CallJson& tools,
                               const ForcedCalls& forced,
                               const std::string& where) {
  const CallWriter writer(form);
  CallJson first = CallJson::array(), more = CallJson::array();
  for (size_t i = 0; tools.is_array() && i < tools.size(); ++i) {
    const Tool tool = ToolOf(tools[i], StrCat(where, "[", i, "]"));
    if (!forced.function.empty() && tool.name != forced.function) continue;
    first.push_back(writer.Call(tool, /*first=*/true));
    more.push_back(writer.Call(tool, /*first=*/false));
  }
  if (first.empty()) {
    throw FormatError(where, "a function to call", "none");
  }
  CallJson text = CallJson::array();
  if (forced.thinks) {
    text.push_back({{"until", kThinkingEnd}});
    text.push_back({{"regex", "\\n{0,2}"}});
  }
  text.push_back(PartOf(form.written.open));
  text.push_back({{"any", std::move(first)}});
  if (forced.several) {
    CallJson next = CallJson::array(
        {PartOf(form.written.between), {{"any", std::move(more)}}});
    text.push_back({{"optional", {{"repeat", std::move(next)}}}});
  }
  text.push_back(PartOf(form.written.close));
  return CallJson{{"marks", MarksOf(form)}, {"text", std::move(text)}}.dump();
}

}  // namespace tarn
