#include "text/grammar/grammar.h"

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

}  // namespace

Grammar::Grammar(const grammar::Source& source)
    : automaton_(MakeAutomaton(source)) {}

Result<Grammar> Grammar::FromGbnf(std::string_view text) {
  try {
    CheckGrammarBytes(text, "grammar");
    return Grammar(grammar::ReadGbnf(text));
  } catch (const FormatError& error) {
    return error;
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
    return error;
  }
}

Result<Grammar> Grammar::FromJsonSchema(std::string_view schema,
                                        const JsonSchemaOptions& options) {
  try {
    CheckGrammarBytes(schema, "schema");
    return Grammar(grammar::ReadJsonSchema(schema, options.white_space));
  } catch (const FormatError& error) {
    return error;
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
