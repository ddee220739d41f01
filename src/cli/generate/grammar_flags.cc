#include "cli/generate/grammar_flags.h"

#include "cli/cli.h"
#include "cli/console/input.h"

namespace tarn::cli {
namespace {

// Far above the grammars' own bounds.
constexpr size_t kMostGrammarBytes = size_t{16} << 20;

struct GrammarFlag {
  const char* name;
  GrammarKind kind;
  std::string GrammarFlags::*value;
  bool is_file;
};
constexpr GrammarFlag kGrammarFlags[] = {
    {"--grammar", GrammarKind::kGbnf, &GrammarFlags::gbnf_file, true},
    {"--json-schema", GrammarKind::kJsonSchema, &GrammarFlags::schema_file,
     true},
    {"--regex", GrammarKind::kRegex, &GrammarFlags::regex, false},
};

std::string ReadGrammarFile(const char* flag, const std::string& path) {
  InputFile input(path);
  std::string text;
  while (text.size() <= kMostGrammarBytes && input.Read(1 << 16, text)) {
  }
  if (text.size() > kMostGrammarBytes) {
    throw ExitError(kExitUsage, StrCat(flag, ": want at most ",
                                       kMostGrammarBytes, " bytes, got more"));
  }
  return text;
}

}  // namespace

void DeclareGrammar(ArgumentParser& parser, GrammarFlags& flags) {
  parser.Add("--grammar", flags.gbnf_file,
             "file with a grammar in GBNF that the text follows");
  parser.Add("--json-schema", flags.schema_file,
             "file with a JSON schema: the text is a document of it");
  parser.Add("--regex", flags.regex,
             "regular expression that the whole text matches");
}

std::shared_ptr<const Constraint> ReadGrammar(
    const ArgumentParser& parser, const GrammarFlags& flags,
    const Tokenizer& tokenizer, std::span<const int32_t> stop_tokens) {
  const GrammarFlag* given = nullptr;
  for (const GrammarFlag& flag : kGrammarFlags) {
    if (!parser.Has(flag.name)) continue;
    if (given != nullptr) {
      throw ExitError(kExitUsage, StrCat(flag.name, ": want it without ",
                                         given->name, ", got both"));
    }
    given = &flag;
  }
  if (given == nullptr) return nullptr;
  const std::string& value = flags.*given->value;
  const std::string source =
      given->is_file ? ReadGrammarFile(given->name, value) : value;
  auto made = Constraint::Make(given->kind, source, tokenizer, stop_tokens);
  if (made.ok()) return std::move(made).Take();
  throw ExitError(kExitUsage, StrCat(given->name, ": ", made.error().what()));
}

}  // namespace tarn::cli
