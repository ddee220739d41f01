// Recursive descent over tokens; as deep as kMaxTemplateDepth allows.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/template/parse/lexer.h"
#include "text/template/parse/program.h"

namespace tarn::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, Program& program);
  /// Statements up to the end.
  void ParseAll();

 private:
  friend class Nested;

  // Tokens (parser.cc).
  const Token& Now() const { return tokens_[at_]; }
  const Token& Next() const {
    return tokens_[std::min(at_ + 1, tokens_.size() - 1)];
  }
  Token Take();
  bool IsName(std::string_view name) const;
  bool IsOperator(std::string_view text) const;
  bool TakeName(std::string_view name);
  bool TakeOperator(std::string_view text);
  void Expect(std::string_view operator_text);
  std::string ExpectName(std::string_view wanted = "a name");
  [[noreturn]] void FailHere(std::string wanted) const;
  Symbol Intern(const std::string& name);

  // Statements (parser.cc).
  Block ParseBlock(std::initializer_list<std::string_view> ends);
  Block ParseBody(std::initializer_list<std::string_view> ends);
  void EndTag();
  Statement ParseStatement();
  Statement ParseIf();
  Statement ParseFor();
  Statement ParseSet();
  Statement ParseWith();
  Statement ParseMacro();
  Statement ParseCallBlock();
  void ParseSignature(MacroDefinition& macro);
  Block ParseMacroBody(MacroDefinition& macro, std::string_view end);
  Target ParseTarget(bool attributes);
  Target ParseOneTarget(bool attributes);

  // Expressions (parse_expression.cc).
  ExpressionPointer Make(ExpressionType type, Position at,
                         std::vector<ExpressionPointer> operands = {});
  ExpressionPointer Constant(Position at, Value value);
  ExpressionPointer ParseExpression(bool conditions = true);
  ExpressionPointer ParseTuple(bool conditions, bool parentheses);
  ExpressionPointer ParseOr();
  ExpressionPointer ParseAnd();
  ExpressionPointer ParseNot();
  ExpressionPointer ParseCompare();
  ExpressionPointer ParseSum();
  ExpressionPointer ParseConcat();
  ExpressionPointer ParseProduct();
  ExpressionPointer ParsePower();
  ExpressionPointer ParseUnary(bool filters = true);
  ExpressionPointer ParsePrimary();
  ExpressionPointer ParseName();
  ExpressionPointer ParseList();
  ExpressionPointer ParseDictionary();
  ExpressionPointer ParsePostfix(ExpressionPointer value);
  ExpressionPointer ParseSubscript(ExpressionPointer value);
  ExpressionPointer ParseFiltersAndTests(ExpressionPointer value);
  ExpressionPointer ParseFilter(ExpressionPointer value);
  ExpressionPointer ParseFilterChain(ExpressionPointer value);
  ExpressionPointer ParseTest(ExpressionPointer value);
  ExpressionPointer ParseCall(ExpressionPointer function);
  CallArguments ParseArguments(uint32_t& depth);
  bool TupleEnds() const;

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  Program& program_;
  std::unordered_map<std::string, Symbol> symbols_;
  uint32_t depth_ = 0;
  int loops_ = 0;      // around the statement, within its macro
  bool soft_ = false;  // within a condition, where an unknown filter may stand
  std::vector<MacroDefinition*> macros_;  // around the statement
  // Filters and tests that do not exist, outside of conditions. Within one they
  // are an error only if they run.
  std::vector<Fault> unknown_;
};

/// One level of the parser's recursion.
class Nested {
 public:
  explicit Nested(Parser& parser);
  ~Nested() { --parser_.depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Parser& parser_;
};

}  // namespace tarn::jinja
