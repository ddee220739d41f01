// --grammar, --json-schema and --regex: what a text must be.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cli/console/parse.h"
#include "runtime/session/constraint.h"

namespace tarn::cli {

struct GrammarFlags {
  std::string gbnf_file, schema_file, regex;
};

void DeclareGrammar(ArgumentParser& parser, GrammarFlags& flags);

/// Null where none was given. Throws ExitError(kExitUsage) for two of them and
/// for a grammar that is not valid, FormatError for a file that cannot be read.
std::shared_ptr<const Constraint> ReadGrammar(
    const ArgumentParser& parser, const GrammarFlags& flags,
    const Tokenizer& tokenizer, std::span<const int32_t> stop_tokens);

}  // namespace tarn::cli
