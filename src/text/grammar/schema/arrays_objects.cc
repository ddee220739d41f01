#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "text/grammar/limits.h"
#include "text/grammar/schema/schema_reader.h"

namespace tarn::grammar {
namespace {

// A count of items or characters; `absent` without the keyword.
int64_t CountOf(const SchemaJson& schema, const char* keyword, int64_t absent,
                const std::string& pointer) {
  if (!schema.contains(keyword)) return absent;
  const auto count = JsonInteger(nlohmann::json(schema[keyword]));
  if (!count || *count < 0 || *count > kMaxGrammarNodes) {
    RefuseKeyword(pointer, keyword,
                  StrCat("a whole number from 0 to ", kMaxGrammarNodes),
                  SchemaGiven(schema[keyword]));
  }
  return *count;
}

struct StringFormat {
  std::string_view name, pattern;
};

// RFC 3339, RFC 4122 and RFC 2673 in their plain forms; addresses and names as
// far as a pattern can say.
#define TARN_HOST_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,60}[A-Za-z0-9])?"
#define TARN_FULL_DATE                                                  \
  "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"       \
  "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" \
  "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|"                       \
  "(?:[02468][048]|[13579][26])00)-02-29)"
#define TARN_FULL_TIME                                           \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?" \
  "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define TARN_DURATION_TIME \
  "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define TARN_H16 "[0-9a-fA-F]{1,4}"
constexpr StringFormat kFormats[] = {
    {"date", "^" TARN_FULL_DATE "$"},
    {"time", "^" TARN_FULL_TIME "$"},
    {"date-time", "^" TARN_FULL_DATE "T" TARN_FULL_TIME "$"},
    {"duration",
     "^P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|"
     "[0-9]+D)(?:" TARN_DURATION_TIME ")?|" TARN_DURATION_TIME ")$"},
    {"uuid",
     "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-"
     "[0-9a-fA-F]{12}$"},
    {"ipv4",
     "^(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
     "(?:\\.(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}$"},
    {"ipv6",
     "^(?:(?:" TARN_H16 ":){7}" TARN_H16 "|(?:" TARN_H16 ":){1,7}:|"
     "(?:" TARN_H16 ":){1,6}:" TARN_H16 "|"
     "(?:" TARN_H16 ":){1,5}(?::" TARN_H16 "){1,2}|"
     "(?:" TARN_H16 ":){1,4}(?::" TARN_H16 "){1,3}|"
     "(?:" TARN_H16 ":){1,3}(?::" TARN_H16 "){1,4}|"
     "(?:" TARN_H16 ":){1,2}(?::" TARN_H16 "){1,5}|"
     "" TARN_H16 ":(?::" TARN_H16 "){1,6}|:(?:(?::" TARN_H16 "){1,7}|:))$"},
    {"hostname", "^" TARN_HOST_LABEL "(?:\\." TARN_HOST_LABEL "){0,3}$"},
    {"email",
     "^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
     "@" TARN_HOST_LABEL "(?:\\." TARN_HOST_LABEL "){0,3}$"},
};
#undef TARN_HOST_LABEL
#undef TARN_FULL_DATE
#undef TARN_FULL_TIME
#undef TARN_DURATION_TIME
#undef TARN_H16

}  // namespace

ExpressionId SchemaReader::StringSchema(const SchemaJson& schema,
                                        const std::string& pointer) {
  int present = 0;
  const bool length =
      schema.contains("minLength") || schema.contains("maxLength");
  for (const bool has :
       {length, schema.contains("pattern"), schema.contains("format")}) {
    present += has ? 1 : 0;
  }
  if (present == 0) return texts_.String();
  if (present > 1) {
    RefuseKeyword(pointer, schema.contains("format") ? "format" : "pattern",
                  "one of format, pattern and bounds of the length",
                  "more than one");
  }
  if (length) {
    const int64_t low = CountOf(schema, "minLength", 0, pointer);
    const int64_t high = CountOf(schema, "maxLength", kUnbounded, pointer);
    if (high != kUnbounded && high < low) {
      RefuseKeyword(pointer, "maxLength", StrCat("at least ", low),
                    StrCat(high));
    }
    return texts_.AsRule(
        source_.Sequence({source_.Text("\""),
                          source_.Repeat(texts_.AnyCharacter(), low, high),
                          source_.Text("\"")}),
        "schema: " + pointer);
  }
  const char* keyword = schema.contains("pattern") ? "pattern" : "format";
  if (!schema[keyword].is_string()) {
    RefuseKeyword(pointer, keyword, "a text", SchemaGiven(schema[keyword]));
  }
  const auto text = schema[keyword].get<std::string>();
  if (schema.contains("pattern")) {
    return texts_.AsRule(
        texts_.QuotedRegex(text, "schema: " + SchemaPointer(pointer, keyword),
                           true),
        "schema: " + pointer);
  }
  std::string names;
  for (const StringFormat& format : kFormats) {
    if (format.name == text) {
      return texts_.AsRule(texts_.QuotedRegex(format.pattern, "format", true),
                           "schema: " + pointer);
    }
    names += StrCat(names.empty() ? "" : ", ", format.name);
  }
  RefuseKeyword(pointer, "format", "one of " + names,
                SchemaGiven(schema[keyword]));
}

ExpressionId SchemaReader::ArraySchema(const SchemaJson& schema,
                                       const std::string& pointer) {
  std::vector<ExpressionId> prefix;
  if (schema.contains("prefixItems")) {
    const SchemaJson& schemas = schema["prefixItems"];
    const std::string place = SchemaPointer(pointer, "prefixItems");
    if (!schemas.is_array()) {
      RefuseSchema(place, "an array", SchemaGiven(schemas));
    }
    for (size_t i = 0; i < schemas.size(); ++i) {
      prefix.push_back(
          Schema(schemas[i], SchemaPointer(place, std::to_string(i))));
    }
  }
  const bool closed =
      schema.contains("items") && schema["items"] == SchemaJson(false);
  const int64_t low = CountOf(schema, "minItems", 0, pointer);
  int64_t high = CountOf(schema, "maxItems", kUnbounded, pointer);
  const auto prefixes = static_cast<int64_t>(prefix.size());
  if (closed) high = high == kUnbounded ? prefixes : std::min(high, prefixes);
  if (high != kUnbounded && high < low) {
    RefuseKeyword(pointer, "minItems", StrCat("at most ", high), StrCat(low));
  }
  if (high == 0) return texts_.Between("[", -1, "]");
  ExpressionId item = -1;
  if (!closed && (high == kUnbounded || high > prefixes)) {
    const std::string place = SchemaPointer(pointer, "items");
    item =
        schema.contains("items")
            ? texts_.AsRule(Schema(schema["items"], place), "schema: " + place)
            : texts_.Value();
    if (prefix.empty()) prefix.push_back(item);
  }
  const ExpressionId comma = texts_.Comma();
  if (high != kUnbounded && high < static_cast<int64_t>(prefix.size())) {
    prefix.resize(static_cast<size_t>(high));
  }
  const auto fixed = static_cast<int64_t>(prefix.size());
  if (item >= 0 && (high == kUnbounded || high > fixed)) {
    prefix.back() = source_.Sequence(
        {prefix.back(),
         source_.Repeat(source_.Sequence({comma, item}),
                        std::max<int64_t>(low - fixed, 0),
                        high == kUnbounded ? kUnbounded : high - fixed)});
  }
  Expression items{.kind = Expression::kItems};
  items.children = {comma};
  items.children.insert(items.children.end(), prefix.begin(), prefix.end());
  items.low = std::min(low, fixed);
  return texts_.Between("[", source_.Add(std::move(items)), "]");
}

ExpressionId SchemaReader::ObjectSchema(const SchemaJson& schema,
                                        const std::string& pointer) {
  const SchemaJson none = SchemaJson::object();
  const SchemaJson& properties =
      schema.contains("properties") ? schema["properties"] : none;
  if (!properties.is_object()) {
    RefuseKeyword(pointer, "properties", "an object", SchemaGiven(properties));
  }
  std::vector<std::string> required;
  if (schema.contains("required")) {
    const SchemaJson& names = schema["required"];
    for (const SchemaJson& name : names) {
      if (names.is_array() && name.is_string()) {
        required.push_back(name.get<std::string>());
      }
    }
    if (!names.is_array() || required.size() != names.size()) {
      RefuseKeyword(pointer, "required", "an array of texts",
                    SchemaGiven(names));
    }
  }
  // Without the keyword, objects that list their properties have no others.
  const bool given = schema.contains("additionalProperties");
  const SchemaJson additional =
      given ? schema["additionalProperties"] : SchemaJson(properties.empty());
  const bool open = additional != SchemaJson(false);
  const std::string other = SchemaPointer(pointer, "additionalProperties");

  Expression members{.kind = Expression::kMembers};
  members.children.push_back(texts_.Comma());
  std::vector<std::string> names;
  const auto add = [&](const std::string& name, ExpressionId value,
                       bool is_required) {
    const SchemaJson key(name);
    members.children.push_back(texts_.Member(source_.Text(key.dump()), value));
    members.required.push_back(is_required);
    names.push_back(name);
  };
  const std::string place = SchemaPointer(pointer, "properties");
  for (const auto& [name, value] : properties.items()) {
    const bool is_required =
        std::find(required.begin(), required.end(), name) != required.end();
    add(name, Schema(value, SchemaPointer(place, name)), is_required);
  }
  ExpressionId other_value = -1;
  if (open) {
    other_value = texts_.AsRule(Schema(additional, other), "schema: " + other);
  }
  for (const std::string& name : required) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    if (given && !open) {
      RefuseKeyword(pointer, "required", "properties that may be there",
                    SchemaGiven(name));
    }
    add(name, open ? other_value : texts_.Value(), true);
  }
  if (open) {
    members.children.push_back(
        texts_.Member(texts_.StringExcept(names, pointer), other_value));
    members.tail = true;
  }
  return texts_.Between("{", source_.Add(std::move(members)), "}");
}

}  // namespace tarn::grammar
