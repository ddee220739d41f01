// Hostile sources and saved states cost bounded time and memory, and errors
// have a type.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"

namespace tarn {
namespace {

std::string Repeated(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

using Reader = Result<Grammar> (*)(const std::string&);
Result<Grammar> Gbnf(const std::string& source) {
  return Grammar::FromGbnf(source);
}
Result<Grammar> Regex(const std::string& source) {
  return Grammar::FromRegex(source);
}
Result<Grammar> Schema(const std::string& source) {
  return Grammar::FromJsonSchema(source);
}

// What the error wants; "" without one.
std::string Refused(Reader read, const std::string& source) {
  const Result<Grammar> grammar = read(source);
  if (grammar.ok()) return "";
  EXPECT_EQ(grammar.error().code(), ErrorCode::kFormat);
  return grammar.error().wanted();
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(GrammarLimits, Bytes) {
  const std::string most = "a source of at most 65536 bytes";
  EXPECT_EQ(Refused(Gbnf, std::string(65537, ' ')), most);
  EXPECT_EQ(Refused(Regex, std::string(65537, 'a')), most);
  EXPECT_EQ(Refused(Schema, std::string(65537, ' ')), most);
}

TEST(GrammarLimits, Repetitions) {
  const std::string nodes = "at most 10000 nodes with repetitions written out";
  EXPECT_EQ(Refused(Regex, std::string(10001, 'a')), nodes);
  EXPECT_EQ(Refused(Regex, std::string(9000, 'a')), "");
  EXPECT_EQ(Refused(Regex, "a{0,9000}"), "");
  EXPECT_EQ(Refused(Regex, "a{0,10000}"), nodes);
  EXPECT_EQ(Refused(Regex, "a{1000000}"), "at most 10000 repetitions");
  EXPECT_EQ(Refused(Regex, "(?:(?:a{1000}){1000}){1000}"), nodes);
  EXPECT_EQ(Refused(Regex, "(?:(?:(?:){9999}){9999}){9999}"), nodes);
  EXPECT_EQ(Refused(Gbnf, "root ::= \"a\"{0,1000000}"),
            "at most 10000 repetitions");
  EXPECT_EQ(Refused(Gbnf, "root ::= ((\"a\"{0,1000}){0,1000})"), nodes);
  EXPECT_EQ(Refused(Gbnf, "root ::= \"\"{9999} ((\"\"{9999}){9999})"), nodes);
  // Rules call each other without being written out.
  std::string doubling = "root ::= r0\n";
  for (int i = 0; i < 1000; ++i) {
    doubling += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) +
                " r" + std::to_string(i + 1) + "\n";
  }
  EXPECT_EQ(Refused(Gbnf, doubling + "r1000 ::= \"a\""), "");
  // Sets that do not become deterministic in reasonable size stay as they are.
  EXPECT_EQ(Refused(Regex, "(?:a|b)*a(?:a|b){20}"), "");
  EXPECT_EQ(Refused(Regex, "(?:a|b)*a(?:a|b){2000}"), "");
  EXPECT_TRUE(
      Has(Refused(Regex, Repeated("a?", 9000)), "at most 200000 edges"));
  // A class with many ranges, many times.
  std::string wide = "[";
  for (int i = 0; i < 2000; ++i) {
    const int c = 0x4E00 + 2 * i;
    wide += static_cast<char>(0xE0 | (c >> 12));
    wide += static_cast<char>(0x80 | ((c >> 6) & 63));
    wide += static_cast<char>(0x80 | (c & 63));
  }
  wide += "]";
  EXPECT_EQ(Refused(Regex, wide), "");
  EXPECT_EQ(Refused(Regex, wide + "{9999}"), nodes);
}

TEST(GrammarLimits, Nesting) {
  const std::string groups = "at most 100 levels of groups";
  EXPECT_EQ(Refused(Regex, Repeated("(", 30000) + Repeated(")", 30000)),
            groups);
  EXPECT_EQ(Refused(Gbnf, "root ::= " + Repeated("(", 30000) + "\"a\"" +
                              Repeated(")", 30000)),
            groups);
  EXPECT_EQ(Refused(Regex, Repeated("(", 90) + "a" + Repeated(")*", 90)), "");
  EXPECT_EQ(Refused(Gbnf, "root ::= \"a\"" + Repeated("*", 30000)),
            "at most 100 repetitions of one");
  std::string chains = "\"a\"";
  for (int i = 0; i < 90; ++i) {
    chains = "(" + chains + Repeated("*", 90) + ")";
  }
  EXPECT_EQ(Refused(Gbnf, "root ::= " + chains),
            "at most 1000 levels of expressions");
  EXPECT_TRUE(Has(Refused(Schema, Repeated("{\"items\":", 5000) + "{}" +
                                      Repeated("}", 5000)),
                  "64 levels"));
  EXPECT_EQ(
      Refused(Schema, Repeated("{\"items\":", 60) + "{}" + Repeated("}", 60)),
      "");
  // A chain of rules and of references.
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 3000; ++i) {
    chain += "r" + std::to_string(i) + "::=r" + std::to_string(i + 1) + "\n";
  }
  EXPECT_EQ(Refused(Gbnf, chain + "r3000::=\"a\""), "");
  std::string references = "{\"$ref\":\"#/$defs/0\",\"$defs\":{";
  for (int i = 0; i < 1000; ++i) {
    references += "\"" + std::to_string(i) + "\":{\"$ref\":\"#/$defs/" +
                  std::to_string(i + 1) + "\"},";
  }
  EXPECT_EQ(Refused(Schema, references + "\"1000\":{\"type\":\"null\"}}}"), "");
  // References that lead back to each other, with something next to each.
  EXPECT_TRUE(Has(
      Refused(
          Schema,
          "{\"$ref\":\"#/$defs/a\",\"minimum\":1,\"$defs\":{\"a\":{\"$ref\":"
          "\"#/$defs/b\",\"maximum\":9},\"b\":{\"$ref\":\"#/$defs/a\","
          "\"minimum\":2}}}"),
      "at most 10000 schemas"));
}

TEST(GrammarLimits, SchemasThatMultiply) {
  // anyOf within allOf, twenty times two ways.
  std::string schema = "{\"type\":\"integer\"}";
  std::string all;
  for (int i = 0; i < 20; ++i) {
    schema = "{\"minimum\":" + std::to_string(i) + ",\"anyOf\":[" + schema +
             "," + schema + "]}";
    if (schema.size() > 30000) break;
  }
  EXPECT_EQ(Refused(Schema, schema), "");
  // An object of many properties takes a few nodes for each.
  std::string wide = "{\"properties\":{";
  for (int i = 0; i < 150; ++i) {
    wide += (i == 0 ? "\"p" : ",\"p") + std::to_string(i) +
            "\":{\"type\":\"string\"}";
  }
  EXPECT_EQ(Refused(Schema, wide + "}}"), "");
  EXPECT_EQ(Refused(Schema, wide + "},\"additionalProperties\":true}"), "");
  std::string values = "{\"enum\":[0";
  for (int i = 1; i < 1500; ++i) values += ",\"v" + std::to_string(i) + "\"";
  EXPECT_EQ(Refused(Schema, values + "]}"), "");
}

TEST(GrammarLimits, Mutations) {
  struct Case {
    Reader read;
    const char* place;  // how errors begin
    std::string source;
  };
  const std::vector<Case> cases = {
      {Gbnf, "grammar",
       "root ::= object\nvalue ::= object | \"[\" (value (\",\" value){0,5})? "
       "\"]\" | [^\"\\\\\\x00-\\x1F]+ # text\nobject ::= \"{\" ws ( \"a\" "
       "value | b{2,3} )* \"}\"\nws ::= [ \\t\\n]*\nb ::= \"\\u00e9\" | .\n"},
      {Regex, "pattern",
       "(?:a|b(?:c{2,5}|[^x-z\\d]*)?)+\\u00e9(?<n>\\\\|\\.|\\s{3})$"},
      {Schema, "schema",
       "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"integer\","
       "\"null\"],\"minimum\":-5,\"maximum\":17},\"b\":{\"$ref\":\"#/$defs/"
       "x\"},"
       "\"c\":{\"anyOf\":[{\"const\":1},{\"type\":\"string\",\"pattern\":"
       "\"^[a-z]{1,3}$\"}]},\"d\":{\"type\":\"array\",\"items\":{\"enum\":[1,2]"
       "}"
       ",\"minItems\":1}},\"required\":[\"a\"],\"additionalProperties\":true,"
       "\"$defs\":{\"x\":{\"type\":\"string\",\"maxLength\":4}}}"}};
  const std::string bytes(
      "{}[]()|*+?\\\"'9^$.,:-#\n\0\xff"
      "a<&",
      27);
  std::mt19937 random(5);
  int good = 0, bad = 0;
  for (const Case& test : cases) {
    for (int i = 0; i < 400; ++i) {
      std::string changed = test.source;
      for (uint32_t change = 0; change <= random() % 3; ++change) {
        const size_t at = random() % changed.size();
        const size_t to = random() % changed.size();
        switch (random() % 4) {
          case 0:
            changed[at] = bytes[random() % bytes.size()];
            break;
          case 1:
            changed.erase(at, 1 + random() % 3);
            break;
          case 2:
            changed.insert(at, changed.substr(to, random() % 9));
            break;
          default:
            changed.insert(at, 1, bytes[random() % bytes.size()]);
        }
        if (changed.empty()) changed = "a";
      }
      const Result<Grammar> grammar = test.read(changed);
      if (grammar.ok()) {
        ++good;
        GrammarState state(grammar.value());
        state.Push("{\"a\": 1}");
        EXPECT_LE(grammar.value().size(), kMaxGrammarNodes);
        continue;
      }
      ++bad;
      const Error& error = grammar.error();
      EXPECT_EQ(error.code(), ErrorCode::kFormat);
      EXPECT_EQ(error.where().rfind(test.place, 0), 0u) << error.what();
    }
  }
  EXPECT_GT(good, 100);
  EXPECT_GT(bad, 300);
}

TEST(GrammarLimits, SavedStates) {
  const Grammar json = Grammar::AnyJson();
  GrammarState state(json);
  ASSERT_TRUE(state.Push("{\"a\": [1, {\"b\": \"c"));
  const std::string saved = state.Save();
  EXPECT_LT(saved.size(), 300u);
  const Result<GrammarState> loaded = GrammarState::Load(json, saved);
  ASSERT_TRUE(loaded.ok());
  EXPECT_TRUE(loaded.value() == state);
  EXPECT_EQ(loaded.value().Save(), saved);
  const auto refused = [&](const Grammar& grammar, const std::string& bytes) {
    const Result<GrammarState> result = GrammarState::Load(grammar, bytes);
    return result.ok() ? std::string() : result.error().given();
  };
  EXPECT_EQ(refused(json, ""), "other bytes");
  EXPECT_EQ(refused(Grammar::FromRegex("a").Take(), saved),
            "another grammar's");
  for (size_t size = 0; size < saved.size(); ++size) {
    EXPECT_NE(refused(json, saved.substr(0, size)), "") << size;
  }
  EXPECT_EQ(refused(json, saved + "x"), "damaged bytes");
  // Whatever a byte becomes, the state can be used.
  int taken = 0;
  for (size_t at = 0; at < saved.size(); ++at) {
    for (const int change : {1, 2, 128, 255}) {
      std::string changed = saved;
      changed[at] = static_cast<char>(changed[at] ^ change);
      Result<GrammarState> result = GrammarState::Load(json, changed);
      if (!result.ok()) continue;
      ++taken;
      GrammarState damaged = std::move(result).Take();
      damaged.Push("\"}]}");
      damaged.complete();
      EXPECT_TRUE(GrammarState::Load(json, damaged.Save()).ok());
    }
  }
  EXPECT_GT(taken, 0);
  // The same grammar, read again.
  EXPECT_TRUE(GrammarState::Load(Grammar::AnyJson(), saved).ok());
}

}  // namespace
}  // namespace tarn
