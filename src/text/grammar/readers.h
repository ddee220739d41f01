// The three notations, each to rules and expressions.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/expression.h"

namespace tarn::grammar {

/// Throws FormatError with line and column.
Source ReadGbnf(std::string_view text);

struct RegexOptions {
  std::string where = {};  // for errors: "pattern", or a place in a schema
  /// Whether a match may begin and end anywhere, as in JSON schemas: what ^ and
  /// $ do not tie to the ends may have any characters before or after it.
  bool search = false;
  /// Makes the expression of a character of a set; null: the character itself.
  std::function<ExpressionId(const CodePointSet&)> character = {};
};

/// Adds the pattern to `source`. Throws FormatError with the byte offset.
ExpressionId ReadRegex(Source& source, std::string_view pattern,
                       const RegexOptions& options);

/// Throws FormatError with the JSON pointer.
Source ReadJsonSchema(std::string_view schema, bool white_space);

/// Grammar::FromParts. marks: null, or where they go.
Source ReadParts(std::string_view document, std::vector<std::string>* marks);

}  // namespace tarn::grammar
