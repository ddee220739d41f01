// A grammar made ready for a model's tokens: what a constrained text shares
// with others of the same grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "text/grammar/grammar.h"
#include "text/grammar/token_masks.h"
#include "text/tokenizer.h"

namespace tarn {

/// Where a grammar's source is written in: "gbnf", "json-schema", "regex"
/// (docs/ grammars.md), "json", any JSON document, whose source is empty, or
/// "parts" (Grammar::FromParts).
enum class GrammarKind { kGbnf, kJsonSchema, kRegex, kJson, kParts };
const char* Name(GrammarKind kind);
/// Throws FormatError that names `where` for any other word.
GrammarKind GrammarKindOf(std::string_view word, const std::string& where);

/// Immutable; thread-safe. Keeps its source, so that a session's file can hold
/// it.
class Constraint {
 public:
  /// Errors as the grammar's. stop_tokens: those that may end the text.
  /// `vocabulary`: masks of the same tokenizer and stop tokens, whose tables
  /// are shared where the marks are the same; null: they are made,
  /// O(vocabulary).
  static Result<std::shared_ptr<const Constraint>> Make(
      GrammarKind kind, const std::string& source, const Tokenizer& tokenizer,
      std::span<const int32_t> stop_tokens,
      const TokenMasks* vocabulary = nullptr);

  GrammarKind kind() const { return kind_; }
  const std::string& source() const { return source_; }
  const Grammar& grammar() const { return grammar_; }
  const TokenMasks& masks() const { return masks_; }

  Constraint(GrammarKind kind, std::string source, Grammar grammar,
             TokenMasks masks)
      : kind_(kind),
        source_(std::move(source)),
        grammar_(std::move(grammar)),
        masks_(std::move(masks)) {}

 private:
  GrammarKind kind_;
  std::string source_;
  Grammar grammar_;
  TokenMasks masks_;
};

}  // namespace tarn
