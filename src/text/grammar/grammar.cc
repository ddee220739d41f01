#include "text/grammar/grammar.h"

#include <algorithm>
#include <string>

#include "core/text.h"
#include "text/grammar/automaton.h"
#include "text/grammar/draft.h"
#include "text/grammar/readers.h"

namespace tarn {
namespace {

std::shared_ptr<const grammar::Automaton> MakeAutomaton(
    const grammar::Source& source) {
  grammar::Draft draft = grammar::MakeDraft(source);
  grammar::PrepareDraft(draft);
  return std::make_shared<const grammar::Automaton>(draft);
}

// Throws FormatError.
void CheckGrammarBytes(std::string_view source, const char* what) {
  if (source.size() <= kMaxGrammarBytes) return;
  throw FormatError(what,
                    StrCat("a source of at most ", kMaxGrammarBytes, " bytes"),
                    StrCat(source.size(), " bytes"));
}

// At most 1,000 bytes of UTF-8 on one line: control characters become \xNN.
std::string OneLineOf(std::string_view text) {
  size_t end = std::min<size_t>(text.size(), 1000);
  // Not within a character.
  while (end < text.size() && end > 0 && (text[end] & 0xC0) == 0x80) --end;
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    const bool control = (text[i] >= 0 && text[i] < 0x20) || text[i] == 0x7F;
    out += control ? Printable(text.substr(i, 1)) : std::string(1, text[i]);
  }
  return end < text.size() ? out + "..." : out;
}

// Places and texts of a source may have line ends in them, and be long.
Error OnOneLine(const FormatError& error) {
  return FormatError(OneLineOf(error.where()), OneLineOf(error.wanted()),
                     OneLineOf(error.given()));
}

}  // namespace

Grammar::Grammar(const grammar::Source& source)
    : automaton_(MakeAutomaton(source)) {}

Result<Grammar> Grammar::FromGbnf(std::string_view text) {
  try {
    CheckGrammarBytes(text, "grammar");
    return Grammar(grammar::ReadGbnf(text));
  } catch (const FormatError& error) {
    return OnOneLine(error);
  }
}

Result<Grammar> Grammar::FromRegex(std::string_view pattern) {
  try {
    CheckGrammarBytes(pattern, "pattern");
    grammar::Source source;
    const grammar::RuleId root = source.AddRule("root");
    const grammar::ExpressionId body =
        grammar::ReadRegex(source, pattern, {.where = "pattern"});
    source.rules[root].body = body;
    return Grammar(source);
  } catch (const FormatError& error) {
    return OnOneLine(error);
  }
}

Result<Grammar> Grammar::FromJsonSchema(std::string_view schema,
                                        const JsonSchemaOptions& options) {
  try {
    CheckGrammarBytes(schema, "schema");
    return Grammar(grammar::ReadJsonSchema(schema, options.white_space));
  } catch (const FormatError& error) {
    return OnOneLine(error);
  }
}

Result<Grammar> Grammar::FromParts(std::string_view document,
                                   std::vector<std::string>* marks) {
  try {
    CheckGrammarBytes(document, "grammar");
    return Grammar(grammar::ReadParts(document, marks));
  } catch (const FormatError& error) {
    return error;
  }
}

Grammar Grammar::AnyJson(const JsonSchemaOptions& options) {
  return Grammar(grammar::ReadJsonSchema("true", options.white_space));
}

uint64_t Grammar::fingerprint() const { return automaton_->fingerprint(); }

int64_t Grammar::size() const { return automaton_->size(); }

}  // namespace tarn
