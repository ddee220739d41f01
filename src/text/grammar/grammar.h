// Grammars that constrain what a model writes: GBNF, JSON schema and regular
// expressions become one automaton over bytes. docs/grammars.md says what each
// supports. Sources and texts are treated as hostile: time and memory are
// bounded. No model, no files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "text/grammar/limits.h"

namespace tarn {

namespace grammar {
class Automaton;
struct Source;
struct StackSet;
}  // namespace grammar

struct JsonSchemaOptions {
  /// Whether white space may stand around the signs of JSON: nothing, a space,
  /// or a new line and up to 20 spaces or tabs. False: none, the shortest form.
  bool white_space = true;
};

/// A set of texts, all valid UTF-8. A value: copies share the automaton.
/// Immutable; thread-safe. Sources of more than kMaxGrammarBytes, and grammars
/// of more than kMaxGrammarNodes, of a rule that begins with itself or without
/// any text are FormatError. Time is bounded by these limits: a few
/// milliseconds, seconds at worst.
class Grammar {
 public:
  /// llama.cpp's notation; the texts are those of rule "root". FormatError
  /// names line and column, both from 1; columns count bytes.
  static Result<Grammar> FromGbnf(std::string_view text);
  /// JSON documents that a schema (draft 2020-12) accepts, in a spelling that
  /// docs/grammars.md describes: properties in the schema's order. FormatError
  /// names the JSON pointer of a keyword that is not supported.
  static Result<Grammar> FromJsonSchema(std::string_view schema,
                                        const JsonSchemaOptions& options = {});
  /// Any JSON document.
  static Grammar AnyJson(const JsonSchemaOptions& options = {});
  /// Texts and schemas put together, such as calls of tools. The document is a
  /// JSON object: `text`, a part, and `marks`, a list of texts that may be
  /// added tokens (TokenMaskOptions::marks), which is also written to `marks`.
  /// A part is a text; a list of parts, one after the other; or an object:
  ///   {"any": [part, ...]}                       one of them
  ///   {"optional": part}
  ///   {"repeat": part, "between": part}          one or more
  ///   {"members": [[required, part], ...], "between": part}  in this order
  ///   {"until": text}     any text up to the first of this ASCII text, and it
  ///   {"regex": pattern}
  ///   {"schema": schema, "where": text}          JSON, with short numbers
  /// FormatError names the pointer within a schema after its `where`.
  static Result<Grammar> FromParts(std::string_view document,
                                   std::vector<std::string>* marks = nullptr);
  /// Texts that the whole of an ECMAScript pattern matches, without
  /// backreferences and assertions. FormatError names the byte offset.
  static Result<Grammar> FromRegex(std::string_view pattern);

  /// Equal for equal automata, also in other processes.
  uint64_t fingerprint() const;
  /// Nodes of the automaton.
  int64_t size() const;

  const grammar::Automaton& automaton() const { return *automaton_; }

 private:
  explicit Grammar(const grammar::Source& source);

  std::shared_ptr<const grammar::Automaton> automaton_;
};

/// A position in a grammar: what may follow the text so far. A value, of some
/// 100 bytes for JSON; forks copy it. Threads may read one at the same time.
class GrammarState {
 public:
  /// The beginning.
  explicit GrammarState(Grammar grammar);

  /// Moves past these bytes, which need not be whole characters. FormatError,
  /// with the state unchanged, where no text of the grammar continues so; the
  /// given value names the first such byte. Also where the text needs more than
  /// limits.h allows, such as 1,024 levels of rules within each other: those
  /// texts count as outside of the grammar. O(bytes) times the positions that
  /// are followed at one time, mostly one to five.
  std::optional<Error> Advance(std::string_view bytes);
  /// The same as a flag: false for an error.
  bool Push(std::string_view bytes) { return !Advance(bytes).has_value(); }
  /// Whether the text so far is one of the grammar's.
  bool complete() const;
  /// Equal states have the same continuations.
  bool operator==(const GrammarState& other) const;

  const Grammar& grammar() const { return grammar_; }
  const grammar::StackSet& stacks() const { return *stacks_; }

  /// For files: bytes that only the same grammar reads. FormatError for all
  /// that Save did not write; damage that leaves a well-formed state is not
  /// found. The state is then one of the grammar's nodes all the same.
  std::string Save() const;
  static Result<GrammarState> Load(Grammar grammar, std::string_view saved);

 private:
  Grammar grammar_;
  // Never null; shared by copies, never changed.
  std::shared_ptr<const grammar::StackSet> stacks_;
};

}  // namespace tarn
