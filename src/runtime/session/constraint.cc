#include "runtime/session/constraint.h"

#include <utility>

#include "core/text.h"

namespace tarn {
namespace {

constexpr std::pair<GrammarKind, const char*> kGrammarKinds[] = {
    {GrammarKind::kGbnf, "gbnf"},   {GrammarKind::kJsonSchema, "json-schema"},
    {GrammarKind::kRegex, "regex"}, {GrammarKind::kJson, "json"},
    {GrammarKind::kParts, "parts"},
};

Result<Grammar> GrammarOf(GrammarKind kind, const std::string& source,
                          std::vector<std::string>& marks) {
  switch (kind) {
    case GrammarKind::kGbnf:
      return Grammar::FromGbnf(source);
    case GrammarKind::kJsonSchema:
      return Grammar::FromJsonSchema(source);
    case GrammarKind::kRegex:
      return Grammar::FromRegex(source);
    case GrammarKind::kParts:
      return Grammar::FromParts(source, &marks);
    case GrammarKind::kJson:
      break;
  }
  return Grammar::AnyJson();
}

}  // namespace

const char* Name(GrammarKind kind) {
  for (const auto& [one, name] : kGrammarKinds) {
    if (one == kind) return name;
  }
  return "";
}

GrammarKind GrammarKindOf(std::string_view word, const std::string& where) {
  for (const auto& [kind, name] : kGrammarKinds) {
    if (word == name) return kind;
  }
  throw FormatError(where, "gbnf, json-schema, regex, json or parts",
                    Quoted(word));
}

Result<std::shared_ptr<const Constraint>> Constraint::Make(
    GrammarKind kind, const std::string& source, const Tokenizer& tokenizer,
    std::span<const int32_t> stop_tokens, const TokenMasks* vocabulary) {
  TokenMaskOptions options;
  Result<Grammar> grammar = GrammarOf(kind, source, options.marks);
  if (!grammar.ok()) return grammar.error();
  const bool shared =
      vocabulary != nullptr && vocabulary->marks() == options.marks;
  TokenMasks masks =
      shared ? vocabulary->With(grammar.value())
             : TokenMasks(grammar.value(), tokenizer, stop_tokens, options);
  return std::make_shared<const Constraint>(
      kind, source, std::move(grammar).Take(), std::move(masks));
}

}  // namespace tarn
