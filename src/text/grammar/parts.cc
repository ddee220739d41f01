// Texts and schemas put together: Grammar::FromParts.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/grammar/limits.h"
#include "text/grammar/readers.h"
#include "text/grammar/schema/schema_reader.h"

namespace tarn::grammar {
namespace {

[[noreturn]] void RefusePart(const std::string& wanted,
                             const SchemaJson& given) {
  throw FormatError("part of a grammar", wanted, SchemaGiven(given));
}

class PartsReader {
 public:
  PartsReader()
      : texts_(source_, /*white_space=*/true,
               /*short_numbers=*/true) {}

  Source Read(const SchemaJson& text) {
    const RuleId root = source_.AddRule("root");
    const ExpressionId body = Part(text);
    source_.rules[root].body = body;
    return std::move(source_);
  }

 private:
  // Documents have at most 64 levels.
  ExpressionId Part(const SchemaJson& part) {
    if (part.is_string()) return source_.Text(part.get<std::string>());
    if (part.is_array()) return source_.Sequence(All(part));
    if (!part.is_object()) RefusePart("a text, a list or an object", part);
    if (part.contains("any")) return source_.Choice(All(part["any"]));
    if (part.contains("optional")) {
      return source_.Optional(Part(part["optional"]));
    }
    if (part.contains("repeat")) return Repeated(part);
    if (part.contains("members")) return Members(part);
    if (part.contains("until")) return Until(TextOf(part, "until"));
    if (part.contains("regex")) {
      return ReadRegex(source_, TextOf(part, "regex"), {.where = "pattern"});
    }
    if (part.contains("schema")) return Schema(part);
    RefusePart("a part that grammars know", part);
  }

  std::vector<ExpressionId> All(const SchemaJson& list) {
    if (!list.is_array() || list.empty()) RefusePart("a list of parts", list);
    std::vector<ExpressionId> all;
    for (const SchemaJson& part : list) all.push_back(Part(part));
    return all;
  }

  static std::string TextOf(const SchemaJson& part, const char* key) {
    if (!part[key].is_string()) RefusePart("a text", part[key]);
    return part[key].get<std::string>();
  }

  ExpressionId Between(const SchemaJson& part) {
    return part.contains("between") ? Part(part["between"]) : source_.Empty();
  }

  // The part is a rule, so that it is written once.
  ExpressionId Repeated(const SchemaJson& part) {
    const ExpressionId one = texts_.AsRule(Part(part["repeat"]), "part");
    const ExpressionId more = source_.Sequence({Between(part), one});
    return source_.Sequence({one, source_.Repeat(more, 0, kUnbounded)});
  }

  ExpressionId Members(const SchemaJson& part) {
    Expression members{.kind = Expression::kMembers};
    members.children.push_back(Between(part));
    if (!part["members"].is_array()) {
      RefusePart("a list of members", part["members"]);
    }
    for (const SchemaJson& member : part["members"]) {
      if (!member.is_array() || member.size() != 2 || !member[0].is_boolean()) {
        RefusePart("[required, part]", member);
      }
      members.children.push_back(Part(member[1]));
      members.required.push_back(member[0].get<bool>());
    }
    return source_.Add(std::move(members));
  }

  ExpressionId Until(const std::string& end) {
    bool plain = !end.empty();
    for (const char c : end) plain = plain && static_cast<uint8_t>(c) < 0x80;
    if (!plain) RefusePart("an ASCII text", end);
    const auto [found, added] = until_.try_emplace(end, 0);
    if (added) {
      const ExpressionId body =
          source_.Add({.kind = Expression::kUntil, .text = end});
      found->second = source_.AddRule("until " + end, body, /*keep=*/true);
    }
    return source_.Call(found->second);
  }

  ExpressionId Schema(const SchemaJson& part) {
    const std::string where =
        part.contains("where") ? TextOf(part, "where") : std::string();
    try {
      return source_.Call(SchemaReader(part["schema"], source_, texts_).Read());
    } catch (const FormatError& error) {
      if (where.empty()) throw;
      throw FormatError(StrCat(where, ": ", error.where()), error.wanted(),
                        error.given());
    }
  }

  Source source_;
  JsonTexts texts_;
  std::map<std::string, RuleId> until_;
};

}  // namespace

Source ReadParts(std::string_view document, std::vector<std::string>* marks) {
  // Strict first; then again for the order of the keys.
  const Result<nlohmann::json> strict =
      ParseStrictJson(document, "grammar", kMaxGrammarBytes);
  if (!strict.ok()) Throw(strict.error());
  const SchemaJson parts = SchemaJson::parse(document);
  if (!parts.is_object() || !parts.contains("text")) {
    RefusePart("an object with a text", parts);
  }
  if (marks != nullptr && parts.contains("marks")) {
    if (!parts["marks"].is_array()) RefusePart("a list", parts["marks"]);
    for (const SchemaJson& mark : parts["marks"]) {
      if (!mark.is_string()) RefusePart("a text", mark);
      marks->push_back(mark.get<std::string>());
    }
  }
  return PartsReader().Read(parts["text"]);
}

}  // namespace tarn::grammar
