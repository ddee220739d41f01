// JSON schemas by tables of documents, and by documents that are written with
// the grammar and then checked by a small validator that follows the standard.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "text/grammar/token_masks.h"

namespace tarn {
namespace {

using Json = nlohmann::json;

bool Accepts(const Grammar& grammar, const std::string& text) {
  GrammarState state(grammar);
  return state.Push(text) && state.complete();
}

std::string Refusal(const std::string& schema) {
  const Result<Grammar> grammar = Grammar::FromJsonSchema(schema);
  return grammar.ok() ? "" : grammar.error().what();
}

struct Row {
  const char* schema;
  std::vector<std::string> accepted, rejected;
};

TEST(JsonSchema, Documents) {
  const std::vector<Row> rows = {
      {"{}",
       {"1", "\"a\"", "null", "true", "[1,[2,{}]]", "{\"a\": {\"b\":[]}}",
        "-0.5e-3", "\"\\u00e9\\ud83d\\ude00\\n\"", "{\n  \"a\": 1\n}"},
       {"", "01", "+1", "1.", ".5", "[1,]", "{\"a\"}", "{a:1}", "\"\\x\"",
        "\"\n\"", "nul", "1 ", " 1", "\"\\ud800\"", "\"\\udc00\"", "[1 ,2]"}},
      {"true", {"[]"}, {"]"}},
      {"{\"type\":\"boolean\"}", {"true", "false"}, {"0", "null"}},
      {"{\"type\":\"null\"}", {"null"}, {"false"}},
      {"{\"type\":\"integer\"}",
       {"0", "-7", "12345678901234567890"},
       {"1.0", "01", "-0", "1e3", "\"1\""}},
      {"{\"type\":\"number\"}",
       {"0", "-0", "1.50", "1e+9", "-2E-3"},
       {"1.", "e1", "NaN", "00"}},
      {"{\"type\":[\"integer\",\"null\"]}", {"3", "null"}, {"3.5", "\"\""}},
      {"{\"type\":\"integer\",\"minimum\":5}",
       {"5", "9", "10", "99", "100000"},
       {"4", "0", "-5", "05"}},
      {"{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}",
       {"-12", "-9", "-1", "0", "7", "99", "105"},
       {"-13", "-20", "106", "110", "1000", "-0"}},
      {"{\"type\":\"integer\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":10}",
       {"1", "9"},
       {"0", "10", "-1"}},
      {"{\"type\":\"integer\",\"maximum\":-3}",
       {"-3", "-4", "-10", "-300"},
       {"-2", "0", "3"}},
      {"{\"type\":\"integer\",\"minimum\":0.5,\"maximum\":2.5}",
       {"1", "2"},
       {"0", "3"}},
      {"{\"type\":\"integer\",\"minimum\":4611686018427387904}",
       {"4611686018427387904", "4611686018427387910", "9999999999999999999"},
       {"4611686018427387903", "999"}},
      {"{\"type\":\"number\",\"minimum\":0}",
       {"0", "0.5", "12.25", "0.0"},
       {"-1", "-0.5", "1e3"}},
      {"{\"type\":\"number\",\"minimum\":-1,\"maximum\":1}",
       {"-1", "-1.0", "-0.99", "0", "-0", "0.5", "1", "1.00"},
       {"1.01", "-1.001", "2", "10"}},
      {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":12}",
       {"0.001", "11.999", "5"},
       {"0", "0.0", "12", "12.0", "-1"}},
      {"{\"type\":\"number\",\"exclusiveMaximum\":0}",
       {"-0.5", "-3"},
       {"0", "-0", "-0.0", "0.5"}},
      {"{\"type\":\"number\",\"minimum\":3,\"maximum\":3}",
       {"3", "3.0"},
       {"3.1", "2"}},
      {"{\"type\":\"string\"}",
       {"\"\"", "\"a \xC3\xA9 \\\" \\\\ \\/\""},
       {"\"", "a", "\"\t\"", "\"\\\"", "\"\xFF\""}},
      {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
       {"\"ab\"", "\"\xC3\xA9\\n\"", "\"\\ud83d\\ude00bc\"", "\"\\u00e9xx\""},
       {"\"a\"", "\"abcd\"", "\"\""}},
      {"{\"type\":\"string\",\"maxLength\":0}", {"\"\""}, {"\"a\""}},
      {"{\"type\":\"string\",\"pattern\":\"^[a-c]{2}$\"}",
       {"\"ab\""},
       {"\"a\"", "\"abc\"", "\"ad\""}},
      {"{\"type\":\"string\",\"pattern\":\"b\"}",
       {"\"b\"", "\"abc\""},
       {"\"ac\""}},
      {"{\"pattern\":\"^a|z$\"}", {"\"ab\"", "\"yz\""}, {"\"za\"", "1"}},
      // Characters of a pattern are those of the string, not of its spelling.
      {"{\"type\":\"string\",\"pattern\":\"^.\\\"\\\\n\\\\\\\\[\\\\x01\\\\t]$"
       "\"}",
       {"\"\\\"\\\"\\n\\\\\\t\"", "\"x\\\"\\n\\\\\\u0001\""},
       {"\"x\"\\n\\\\\\t\"", "\"\\n\\\"\\n\\\\\\t\""}},
      {"{\"type\":\"string\",\"format\":\"date\"}",
       {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\""},
       {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"2024-04-31\"",
        "\"24-01-01\""}},
      {"{\"type\":\"string\",\"format\":\"time\"}",
       {"\"23:59:59Z\"", "\"00:00:00.125+05:30\""},
       {"\"24:00:00Z\"", "\"12:00Z\"", "\"12:00:00\""}},
      {"{\"type\":\"string\",\"format\":\"date-time\"}",
       {"\"2024-01-31T12:30:00Z\"", "\"2024-01-31T12:30:00.5-08:00\""},
       {"\"2024-01-31 12:30:00Z\"", "\"2024-01-31\""}},
      {"{\"type\":\"string\",\"format\":\"uuid\"}",
       {"\"123e4567-e89b-12d3-a456-426614174000\""},
       {"\"123e4567e89b12d3a456426614174000\"", "\"x\""}},
      {"{\"type\":\"string\",\"format\":\"ipv4\"}",
       {"\"127.0.0.1\"", "\"255.255.255.255\""},
       {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
      {"{\"type\":\"string\",\"format\":\"ipv6\"}",
       {"\"::\"", "\"::1\"", "\"fe80::1:2\"", "\"1:2:3:4:5:6:7:8\"", "\"1::8\"",
        "\"1:2:3:4:5:6:7::\""},
       {"\":::\"", "\"1:2\"", "\"1:2:3:4:5:6:7:8:9\"", "\"1::2::3\"",
        "\"12345::\""}},
      {"{\"type\":\"string\",\"format\":\"duration\"}",
       {"\"P1D\"", "\"PT5M30S\"", "\"P2W\"", "\"P1Y2M3DT4H\""},
       {"\"P\"", "\"PT\"", "\"1D\"", "\"P1D2Y\""}},
      {"{\"type\":\"string\",\"format\":\"email\"}",
       {"\"a.b+c@site.example\"", "\"x@y\""},
       {"\"a\"", "\"a@\"", "\"@b\"", "\"a b@c\"", "\"a..b@c\""}},
      {"{\"type\":\"string\",\"format\":\"hostname\"}",
       {"\"example.org\"", "\"a\"", "\"x-1.y\""},
       {"\"-a\"", "\"a-\"", "\"a..b\"", "\"\""}},
      {"{\"enum\":[1,\"a\",null,[1,{\"b\":2}],2.5]}",
       {"1", "\"a\"", "null", "[1,{\"b\":2}]", "2.5"},
       {"2", "\"b\"", "[1]"}},
      {"{\"enum\":[1,\"a\",true],\"type\":\"string\"}",
       {"\"a\""},
       {"1", "true"}},
      {"{\"const\":{\"k\":\"\\\"\\n\"}}", {"{\"k\":\"\\\"\\n\"}"}, {"{}"}},
      {"{\"type\":\"array\"}", {"[]", "[1,\"a\"]", "[ ]"}, {"{}", "[1"}},
      {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
       {"[]", "[1]", "[1, 2,3]", "[\n  1,\n  2\n]"},
       {"[\"a\"]", "[1,]", "[,1]"}},
      {"{\"items\":{\"type\":\"null\"},\"minItems\":2,\"maxItems\":3}",
       {"[null,null]", "[null,null,null]"},
       {"[]", "[null]", "[null,null,null,null]"}},
      {"{\"type\":\"array\",\"maxItems\":0}", {"[]", "[ ]"}, {"[1]"}},
      {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"},"
       "{\"type\":\"integer\"}],\"items\":false}",
       {"[]", "[\"a\"]", "[\"a\",1]"},
       {"[1]", "[\"a\",1,2]"}},
      {"{\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"integer\"}],"
       "\"items\":{\"type\":\"null\"},\"minItems\":1,\"maxItems\":4}",
       {"[\"a\"]", "[\"a\",1]", "[\"a\",1,null,null]"},
       {"[]", "[\"a\",1,2]", "[\"a\",null]", "[\"a\",1,null,null,null]"}},
      {"{\"prefixItems\":[{\"const\":1},{\"const\":2},{\"const\":3}],"
       "\"maxItems\":2,\"minItems\":1}",
       {"[1]", "[1,2]"},
       {"[]", "[1,2,3]", "[2]"}},
      {"{\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":2},"
       "\"minItems\":3}",
       {"[1,2,2]", "[1,2,2,2]"},
       {"[1,2]", "[1]"}},
      {"{\"type\":\"object\"}", {"{}", "{\"a\":[]}"}, {"[]"}},
      {"{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
       "\"string\"}},\"required\":[\"a\"]}",
       {"{\"a\":1}", "{\"a\": 1, \"b\": \"x\"}", "{\n \"a\":1\n}"},
       {"{}", "{\"b\":\"x\"}", "{\"b\":\"x\",\"a\":1}", "{\"a\":1,\"c\":2}",
        "{\"a\":1,}", "{\"a\":1 \"b\":\"x\"}", "{,\"a\":1}"}},
      {"{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true,\"c\":true}"
       "}",
       {"{}", "{\"a\":1}", "{\"b\":1}", "{\"c\":1}", "{\"a\":1,\"c\":2}",
        "{\"a\":1,\"b\":2,\"c\":3}"},
       {"{\"c\":1,\"a\":2}", "{\"d\":1}"}},
      {"{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}",
       {"{}"},
       {"{\"a\":1}"}},
      {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
       {"{}", "{\"x\":1, \"y\":2}"},
       {"{\"x\":\"1\"}"}},
      {"{\"properties\":{\"ab\":{\"const\":1},\"a\":{\"const\":2}},"
       "\"additionalProperties\":{\"const\":3}}",
       {"{}", "{\"ab\":1,\"a\":2}", "{\"b\":3}", "{\"abc\":3}", "{\"\":3}",
        "{\"ab\":1,\"x\":3,\"y\":3}", "{\"A\":3}", "{\"\\n\":3}"},
       {"{\"ab\":3}", "{\"a\":3}", "{\"a\":2,\"ab\":1}", "{\"\\u0061\":3}",
        "{\"x\":1}"}},
      {"{\"properties\":{\"\":{\"const\":1},\"\\\"\\u00e9\":{\"const\":2}},"
       "\"additionalProperties\":true}",
       {"{\"\":1,\"\\\"\xC3\xA9\":2,\"z\":3}", "{\"\\\"\":5}"},
       {"{\"\":2}", "{\"\\\"\xC3\xA9\":3}"}},
      {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"required\":"
       "[\"z\",\"a\"]}",
       {"{\"a\":1,\"z\":[]}"},
       {"{\"a\":1}", "{\"z\":1,\"a\":1}"}},
      {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}",
       {"1", "\"a\""},
       {"null"}},
      {"{\"type\":\"integer\",\"anyOf\":[{\"minimum\":10},{\"maximum\":-10}]}",
       {"10", "-10", "99"},
       {"0", "9", "-9", "\"a\""}},
      {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":[\"null\",\"string\"]}]}",
       {"1", "null", "\"\""},
       {"true"}},
      {"{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"n\":{\"type\":"
       "\"integer\"}},\"type\":\"object\",\"required\":[\"k\",\"n\"]},"
       "{\"properties\":{\"k\":{\"const\":\"b\"}},\"type\":\"object\","
       "\"required\":[\"k\"]}]}",
       {"{\"k\":\"a\",\"n\":1}", "{\"k\":\"b\"}"},
       {"{\"k\":\"a\"}", "{\"k\":\"c\"}", "{\"k\":\"b\",\"n\":1}"}},
      {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},"
       "\"required\":[\"a\"]},{\"properties\":{\"b\":{\"type\":\"string\"}}}],"
       "\"type\":\"object\"}",
       {"{\"a\":1}", "{\"a\":1,\"b\":\"\"}"},
       {"{}", "{\"b\":\"\"}"}},
      {"{\"allOf\":[{\"type\":\"number\",\"minimum\":3},{\"type\":\"integer\","
       "\"maximum\":5},{\"minimum\":4}]}",
       {"4", "5"},
       {"3", "6", "4.5"}},
      {"{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":3}}},{\"properties\":"
       "{\"a\":{\"type\":\"integer\"}}}]}",
       {"{\"a\":3}", "{}"},
       {"{\"a\":2}", "{\"a\":3.5}"}},
      {"{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"type\":\"null\"}}}",
       {"null"},
       {"1"}},
      {"{\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"v\":{"
       "\"type\":\"integer\"},\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/node\"},"
       "{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}},"
       "\"$ref\":\"#/$defs/node\"}",
       {"{\"v\":1,\"next\":null}",
        "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
       {"{\"v\":1}", "null", "{\"v\":1,\"next\":{\"v\":2}}"}},
      {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}",
       {"[]", "[[],[[]]]"},
       {"[1]", "[[]"}},
      {"{\"$ref\":\"#/$defs/a~1b~0\",\"maximum\":3,\"$defs\":{\"a/b~\":"
       "{\"type\":\"integer\",\"minimum\":1}}}",
       {"1", "3"},
       {"0", "4"}},
      {"{\"title\":\"t\",\"description\":\"d\",\"default\":1,\"examples\":[1],"
       "\"$comment\":\"c\",\"x-mine\":{},\"uniqueItems\":false,"
       "\"type\":\"integer\"}",
       {"1"},
       {"\"\""}},
  };
  EXPECT_GE(rows.size(), 60u);
  for (const Row& row : rows) {
    const Result<Grammar> grammar = Grammar::FromJsonSchema(row.schema);
    ASSERT_TRUE(grammar.ok()) << row.schema << grammar.error().what();
    for (const std::string& text : row.accepted) {
      EXPECT_TRUE(Accepts(grammar.value(), text)) << row.schema << ": " << text;
    }
    for (const std::string& text : row.rejected) {
      EXPECT_FALSE(Accepts(grammar.value(), text))
          << row.schema << ": " << text;
    }
  }
}

TEST(JsonSchema, IntegersInRangesExactly) {
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    const auto draw = [&] {
      const int size[] = {12, 120, 1200};
      const int most = size[random() % 3];
      return static_cast<int>(random() % static_cast<uint32_t>(2 * most)) -
             most;
    };
    int low = draw(), high = draw();
    if (low > high) std::swap(low, high);
    Json schema = {{"type", "integer"}};
    const bool bounded_low = i % 4 != 0, bounded_high = i % 5 != 0;
    if (bounded_low) schema["minimum"] = low;
    if (bounded_high) schema["maximum"] = high;
    const Grammar grammar = Grammar::FromJsonSchema(schema.dump()).Take();
    for (int n = -1300; n <= 1300; ++n) {
      const bool wanted =
          (!bounded_low || n >= low) && (!bounded_high || n <= high);
      ASSERT_EQ(Accepts(grammar, std::to_string(n)), wanted)
          << schema << " " << n;
    }
  }
}

TEST(JsonSchema, WithoutWhiteSpace) {
  const Grammar grammar =
      Grammar::FromJsonSchema("{\"type\":\"array\",\"items\":true}",
                              {.white_space = false})
          .Take();
  EXPECT_TRUE(Accepts(grammar, "[1,{\"a\":[]}]"));
  EXPECT_FALSE(Accepts(grammar, "[1, 2]"));
  EXPECT_FALSE(Accepts(grammar, "[ ]"));
}

TEST(JsonSchema, RefusesByNameAndPlace) {
  EXPECT_EQ(Refusal("{\"not\":{}}"),
            "schema: #/not: want a keyword that grammars support, got 'not'");
  EXPECT_EQ(Refusal("{\"properties\":{\"a/b\":{\"multipleOf\":2}}}"),
            "schema: #/properties/a~1b/multipleOf: want a keyword that "
            "grammars support, got 'multipleOf'");
  EXPECT_EQ(Refusal("{\"properties\":{\"a\\nb\":{\"multipleOf\":2}}}"),
            "schema: #/properties/a\\x0ab/multipleOf: want a keyword that "
            "grammars support, got 'multipleOf'");
  EXPECT_LT(Refusal("{\"properties\":{\"" + std::string(9999, 'a') +
                    "\":{\"multipleOf\":2}}}")
                .size(),
            1200u);
  const auto refused_at = [](const std::string& schema,
                             const std::string& place) {
    const std::string error = Refusal(schema);
    EXPECT_EQ(error.substr(0, place.size() + 10), "schema: " + place + ": ")
        << schema << ": " << error;
  };
  for (const char* keyword :
       {"if", "contains", "propertyNames", "minProperties", "maxProperties",
        "dependentRequired", "unevaluatedProperties", "patternProperties",
        "uniqueItems", "$dynamicRef", "nullable", "Type"}) {
    refused_at("{\"items\":{\"" + std::string(keyword) + "\":1}}",
               "#/items/" + std::string(keyword));
  }
  refused_at("{\"type\":\"int\"}", "#/type");
  refused_at("{\"type\":[]}", "#/type");
  refused_at("{\"type\":\"string\",\"format\":\"uri\"}", "#/format");
  refused_at("{\"type\":\"string\",\"pattern\":\"a\",\"minLength\":1}",
             "#/pattern");
  refused_at("{\"type\":\"string\",\"pattern\":\"(?=a)\"}",
             "#/pattern: byte 0");
  refused_at("{\"type\":\"string\",\"minLength\":-1}", "#/minLength");
  refused_at("{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}",
             "#/maxLength");
  refused_at("{\"type\":\"string\",\"maxLength\":1000000}", "#/maxLength");
  refused_at("{\"type\":\"number\",\"minimum\":0.5}", "#/minimum");
  refused_at("{\"type\":\"integer\",\"minimum\":1e30}", "#/minimum");
  refused_at("{\"type\":\"integer\",\"minimum\":2,\"maximum\":1}", "#");
  refused_at("{\"type\":\"integer\",\"minimum\":\"1\"}", "#/minimum");
  refused_at("{\"enum\":[]}", "#");
  refused_at("{\"enum\":[1],\"minimum\":0}", "#/minimum");
  refused_at("{\"const\":1,\"type\":\"string\"}", "#");
  refused_at("{\"type\":\"array\",\"minItems\":2,\"maxItems\":1}",
             "#/minItems");
  refused_at("{\"type\":\"array\",\"items\":[{}]}", "#/items");
  refused_at("{\"properties\":{\"a\":false}}", "#/properties/a");
  refused_at("{\"required\":\"a\"}", "#/required");
  refused_at("{\"required\":[\"a\"],\"additionalProperties\":false}",
             "#/required");
  refused_at("{\"$ref\":\"#/$defs/x\"}", "#");
  refused_at("{\"$ref\":\"other.json\"}", "#");
  refused_at("{\"anyOf\":[]}", "#/anyOf");
  refused_at("{\"anyOf\":[3]}", "#/anyOf/0");
  refused_at("{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}",
             "#/oneOf/1");
  refused_at("{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}",
             "#/allOf/1/type");
  refused_at("{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}",
             "#/allOf/1/pattern");
  refused_at(
      "{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":"
      "false},{\"properties\":{\"b\":{}}}]}",
      "#/allOf/1/additionalProperties");
  EXPECT_NE(Refusal("{\"$ref\":\"#\"}").find("begin with themselves"),
            std::string::npos);
  EXPECT_NE(
      Refusal("{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}"
              "},\"required\":[\"a\"]}")
          .find("at least one sentence"),
      std::string::npos);
  EXPECT_NE(Refusal("{\"type\":}").find("schema"), std::string::npos);
  EXPECT_NE(Refusal("{\"type\":\"null\",\"type\":\"null\"}").find("schema"),
            std::string::npos);
  EXPECT_NE(Refusal("[]").find("#: want a schema"), std::string::npos);
}

// The standard's meaning of the keywords, without references but to $defs.
class Validator {
 public:
  explicit Validator(Json root) : root_(std::move(root)) {}
  bool Valid(const Json& value) const { return Valid(root_, value); }

 private:
  static bool HasType(const Json& value, const std::string& type) {
    if (type == "integer") {
      return value.is_number() &&
             value.get<double>() == std::floor(value.get<double>());
    }
    return (type == "object" && value.is_object()) ||
           (type == "array" && value.is_array()) ||
           (type == "string" && value.is_string()) ||
           (type == "number" && value.is_number()) ||
           (type == "boolean" && value.is_boolean()) ||
           (type == "null" && value.is_null());
  }
  static size_t Length(const std::string& text) {
    size_t count = 0;
    for (const char c : text) count += (c & 0xC0) != 0x80;
    return count;
  }
  bool Valid(const Json& schema, const Json& v) const {
    if (schema.is_boolean()) return schema.get<bool>();
    bool ok = true;
    for (const auto& [key, rule] : schema.items()) {
      ok = ok && Keyword(schema, key, rule, v);
    }
    return ok;
  }
  bool Keyword(const Json& schema, const std::string& key, const Json& rule,
               const Json& v) const {
    if (key == "type") {
      if (rule.is_string()) return HasType(v, rule);
      return std::any_of(rule.begin(), rule.end(),
                         [&](const Json& type) { return HasType(v, type); });
    }
    if (key == "enum") {
      return std::find(rule.begin(), rule.end(), v) != rule.end();
    }
    if (key == "const") return v == rule;
    if (key == "$ref") {
      const std::string target = rule;
      return Valid(root_.at(Json::json_pointer(target.substr(1))), v);
    }
    if (key == "allOf" || key == "anyOf" || key == "oneOf") {
      const auto count =
          std::count_if(rule.begin(), rule.end(),
                        [&](const Json& part) { return Valid(part, v); });
      if (key == "oneOf") return count == 1;
      return key == "anyOf" ? count > 0
                            : count == static_cast<std::ptrdiff_t>(rule.size());
    }
    if (v.is_number()) {
      const double n = v;
      if (key == "minimum") return n >= rule.get<double>();
      if (key == "maximum") return n <= rule.get<double>();
      if (key == "exclusiveMinimum") return n > rule.get<double>();
      if (key == "exclusiveMaximum") return n < rule.get<double>();
    }
    if (v.is_string()) {
      if (key == "minLength") return Length(v) >= rule.get<size_t>();
      if (key == "maxLength") return Length(v) <= rule.get<size_t>();
    }
    if (v.is_array()) {
      if (key == "minItems") return v.size() >= rule.get<size_t>();
      if (key == "maxItems") return v.size() <= rule.get<size_t>();
      const Json none = Json::array();
      const Json& prefix = schema.value("prefixItems", none);
      for (size_t i = 0; i < v.size(); ++i) {
        if (key == "items" && i >= prefix.size() && !Valid(rule, v[i])) {
          return false;
        }
        if (key == "prefixItems" && i < rule.size() && !Valid(rule[i], v[i])) {
          return false;
        }
      }
    }
    if (v.is_object()) {
      if (key == "required") {
        return std::all_of(rule.begin(), rule.end(), [&](const Json& name) {
          return v.contains(name.get<std::string>());
        });
      }
      for (const auto& [name, member] : v.items()) {
        const bool listed = schema.contains("properties") &&
                            schema["properties"].contains(name);
        if (key == "properties" && listed && !Valid(rule[name], member)) {
          return false;
        }
        if (key == "additionalProperties" && !listed && !Valid(rule, member)) {
          return false;
        }
      }
    }
    return true;
  }

  const Json root_;
};

// What a model that draws bytes would write: each document must be valid.
TEST(JsonSchema, RandomDocumentsAreValid) {
  const std::vector<std::string> schemas = {
      "{}",
      "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\","
      "\"maxLength\":4},\"age\":{\"type\":\"integer\",\"minimum\":-20,"
      "\"maximum\":130},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":"
      "[\"x\",\"yy\",3]},\"minItems\":1,\"maxItems\":3}},\"required\":[\"age\"]"
      ","
      "\"additionalProperties\":{\"type\":[\"null\",\"boolean\"]}}",
      "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"}"
      "},"
      "\"required\":[\"k\"]},{\"type\":\"object\",\"properties\":{\"k\":{"
      "\"const\":\"b\"},\"v\":{\"type\":\"number\",\"minimum\":-2,\"maximum\":"
      "2}"
      "},\"required\":[\"k\"]},{\"type\":\"array\",\"prefixItems\":[{\"type\":"
      "\"integer\"}],\"items\":{\"type\":\"string\",\"minLength\":1},"
      "\"minItems\":1}]}",
      "{\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"left\":{"
      "\"$ref\":\"#/$defs/tree\"},\"leaf\":{\"type\":\"number\","
      "\"exclusiveMinimum\":0,\"maximum\":7}},\"required\":[\"leaf\"]}},"
      "\"$ref\":\"#/$defs/tree\"}",
      "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
      "\"integer\",\"minimum\":0}},\"required\":[\"a\"]},{\"properties\":{"
      "\"a\":{"
      "\"maximum\":12},\"b\":{\"type\":\"boolean\"}},\"required\":[\"b\"]}]}",
      "{\"anyOf\":[{\"type\":\"integer\",\"exclusiveMaximum\":-3},{\"type\":"
      "\"array\",\"items\":{\"type\":\"string\",\"maxLength\":2},\"maxItems\":"
      "2}"
      "]}",
  };
  const Tokenizer bytes = Tokenizer::Byte();
  std::mt19937 random(11);
  for (const std::string& source : schemas) {
    const Grammar grammar = Grammar::FromJsonSchema(source).Take();
    const Validator validator(Json::parse(source));
    const TokenMasks masks(grammar, bytes, {});
    std::vector<uint32_t> mask(8);
    int documents = 0;
    for (int run = 0; run < 400; ++run) {
      GrammarState state(grammar);
      std::string text;
      // Prefers what ends things: text would not end otherwise.
      while (text.size() < 400 && !(state.complete() && random() % 2 == 0)) {
        masks.Fill(state, mask);
        std::vector<char> allowed;
        for (int byte = 0; byte < 256; ++byte) {
          if ((mask[static_cast<size_t>(byte / 32)] >> (byte % 32) & 1) == 0) {
            continue;
          }
          const char c = static_cast<char>(byte);
          const bool ends = std::string("\"}],:").find(c) != std::string::npos;
          allowed.insert(allowed.end(), ends ? 30 : 1, c);
        }
        if (allowed.empty()) break;
        text.push_back(allowed[random() % allowed.size()]);
        ASSERT_TRUE(state.Push(text.substr(text.size() - 1))) << text;
      }
      if (!state.complete()) {
        ASSERT_GE(text.size(), 400u) << "no way on: " << text;
        continue;
      }
      ++documents;
      const Json document = Json::parse(text, nullptr, false);
      // Numbers may be larger than a double; nothing else is refused.
      if (document.is_discarded()) {
        ASSERT_NE(text.find_first_of("eE"), std::string::npos) << text;
        continue;
      }
      ASSERT_TRUE(validator.Valid(document)) << source << "\n" << text;
    }
    EXPECT_GT(documents, 100) << source;
  }
}

}  // namespace
}  // namespace tarn
