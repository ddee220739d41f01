// JSON schemas to rules. Included by .cc files only, as core/json.h is.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/expression.h"

namespace tarn::grammar {

using SchemaJson = nlohmann::ordered_json;

/// Throws FormatError for a place in a schema; pointer: "#/properties/a".
[[noreturn]] void RefuseSchema(const std::string& pointer,
                               const std::string& wanted,
                               const std::string& given);
/// Throws it for a keyword of the schema at `pointer`.
[[noreturn]] void RefuseKeyword(const std::string& pointer,
                                const std::string& keyword,
                                const std::string& wanted,
                                const std::string& given);
/// The pointer of a member.
std::string SchemaPointer(const std::string& pointer, const std::string& key);
/// "the text 'abc'", shortened.
std::string SchemaGiven(const SchemaJson& value);

/// The schema that accepts what both accept, where one schema can say so;
/// refuses the keyword otherwise. Neither has a $ref.
SchemaJson MergeSchemas(const SchemaJson& a, const SchemaJson& b,
                        const std::string& pointer);

/// Expressions for JSON texts that schemas share.
class JsonTexts {
 public:
  /// white_space: JsonSchemaOptions. short_numbers: of at most 18 digits before
  /// and 17 after the point and an exponent of two, which every reader takes.
  JsonTexts(Source& source, bool white_space, bool short_numbers = false)
      : source_(source),
        white_space_(white_space),
        short_numbers_(short_numbers) {}

  ExpressionId Space();
  /// A call of the rule of any value, string, integer, number.
  ExpressionId Value();
  ExpressionId String();
  ExpressionId Integer();
  ExpressionId Number();
  /// One character of a string in any spelling.
  ExpressionId AnyCharacter();
  /// One character of a set in its shortest spelling; nothing for none.
  ExpressionId Character(const CodePointSet& set);
  /// A string that is none of these texts (UTF-8), in its shortest spelling.
  ExpressionId StringExcept(std::vector<std::string> texts,
                            const std::string& pointer);
  /// A regular expression of the source's own.
  ExpressionId Regex(std::string_view pattern);
  /// The same with characters as a JSON string writes them, in quotes.
  ExpressionId QuotedRegex(std::string_view pattern, const std::string& where,
                           bool search);
  /// Members or items between brackets. `inner` may be -1: none.
  ExpressionId Between(const char* open, ExpressionId inner, const char* close);
  ExpressionId Comma();
  /// A member of an object: key, colon, value.
  ExpressionId Member(ExpressionId key, ExpressionId value);
  /// A call of a rule with this body, unless it is a call already.
  ExpressionId AsRule(ExpressionId body, const std::string& name);

  /// Integers from low to high; nothing: unbounded.
  ExpressionId IntegerRange(std::optional<int64_t> low,
                            std::optional<int64_t> high);
  /// Decimal numbers from low to high without an exponent; `open`: without the
  /// bound itself.
  struct Bound {
    int64_t value;
    bool open = false;
  };
  ExpressionId NumberRange(std::optional<Bound> low, std::optional<Bound> high);

 private:
  enum Shared {
    kSpace,
    kValue,
    kString,
    kInteger,
    kNumber,
    kCharacter,
    kRest,
    kEscape,
    kSharedCount
  };
  // The rule, made when it is first asked for.
  template <typename Make>
  ExpressionId SharedRule(Shared which, const char* name, bool keep,
                          const Make& make);
  ExpressionId Escape(const CodePointSet& set);
  ExpressionId AnyEscape();
  ExpressionId AnyRest();
  ExpressionId Digits(int64_t count);
  ExpressionId DigitsFrom(const std::string& low);
  ExpressionId DigitsTo(const std::string& high);
  ExpressionId DigitsBetween(const std::string& low, const std::string& high);
  ExpressionId Magnitudes(uint64_t low, std::optional<uint64_t> high);
  ExpressionId Decimals(uint64_t low, bool low_open,
                        std::optional<uint64_t> high, bool high_open);
  ExpressionId KeyRest(const std::vector<std::u32string>& names, size_t begin,
                       size_t end, size_t depth);

  Source& source_;
  const bool white_space_, short_numbers_;
  RuleId shared_[kSharedCount] = {-1, -1, -1, -1, -1, -1, -1, -1};
};

class SchemaReader {
 public:
  /// Refers to both, which other readers may share.
  SchemaReader(SchemaJson document, Source& source, JsonTexts& texts)
      : document_(std::move(document)), source_(source), texts_(texts) {}
  /// Adds the rules of the document; returns that of all of it.
  RuleId Read();

 private:
  ExpressionId Schema(const SchemaJson& schema, const std::string& pointer);
  ExpressionId SchemaOfTypes(const SchemaJson& schema,
                             const std::string& pointer);
  ExpressionId Reference(const std::string& pointer, const std::string& target);
  ExpressionId Values(const SchemaJson& schema, const std::string& pointer);
  ExpressionId Alternatives(const SchemaJson& schema, const char* keyword,
                            const std::string& pointer);
  ExpressionId StringSchema(const SchemaJson& schema,
                            const std::string& pointer);
  ExpressionId NumberSchema(const SchemaJson& schema, bool integer,
                            const std::string& pointer);
  ExpressionId ArraySchema(const SchemaJson& schema,
                           const std::string& pointer);
  ExpressionId ObjectSchema(const SchemaJson& schema,
                            const std::string& pointer);

  void CheckKeywords(const SchemaJson& schema, const std::string& pointer);
  // With a $ref's target in its place, also of the target.
  SchemaJson Resolved(SchemaJson schema, const std::string& pointer);
  const SchemaJson& Target(const std::string& pointer,
                           const std::string& target) const;
  // Whether no value is of both; false where that is not certain.
  bool Disjoint(const SchemaJson& a, const SchemaJson& b,
                const std::string& pointer, int levels);
  void Work(const std::string& pointer, int64_t amount);

  const SchemaJson document_;
  Source& source_;
  JsonTexts& texts_;
  std::map<std::string, RuleId> references_;  // by target
  std::vector<std::string> pending_;          // targets without a body yet
  int64_t work_ = 0;
  int64_t nesting_ = 0;
};

}  // namespace tarn::grammar
