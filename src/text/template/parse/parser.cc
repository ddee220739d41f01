#include "text/template/parse/parser.h"

#include <algorithm>

#include "core/text.h"
#include "text/template/values/restore.h"

namespace tarn::jinja {
namespace {

std::string TokenText(const Token& token) {
  switch (token.type) {
    case TokenType::kEnd:
      return "the end of the template";
    case TokenType::kVariableEnd:
      return "'}}'";
    case TokenType::kBlockEnd:
      return "'%}'";
    case TokenType::kString:
      return "the string " + Quoted(token.text);
    default:
      return Quoted(token.text);
  }
}

}  // namespace

Nested::Nested(Parser& parser) : parser_(parser) {
  if (++parser_.depth_ > kMaxTemplateDepth) {
    --parser_.depth_;
    FailAt(parser_.Now().at,
           StrCat("at most ", kMaxTemplateDepth, " levels of nesting"), "more");
  }
}

Parser::Parser(std::vector<Token> tokens, Program& program)
    : tokens_(std::move(tokens)), program_(program) {
  program_.loop = Intern("loop");
  program_.caller = Intern("caller");
  program_.varargs = Intern("varargs");
  program_.kwargs = Intern("kwargs");
}

Token Parser::Take() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::IsName(std::string_view name) const {
  return Now().type == TokenType::kName && Now().text == name;
}

bool Parser::IsOperator(std::string_view text) const {
  return Now().type == TokenType::kOperator && Now().text == text;
}

bool Parser::TakeName(std::string_view name) {
  const bool found = IsName(name);
  if (found) Take();
  return found;
}

bool Parser::TakeOperator(std::string_view text) {
  const bool found = IsOperator(text);
  if (found) Take();
  return found;
}

void Parser::Expect(std::string_view operator_text) {
  if (!TakeOperator(operator_text)) FailHere(Quoted(operator_text));
}

std::string Parser::ExpectName(std::string_view wanted) {
  if (Now().type != TokenType::kName) FailHere(std::string(wanted));
  return Take().text;
}

void Parser::FailHere(std::string wanted) const {
  FailAt(Now().at, std::move(wanted), TokenText(Now()));
}

Symbol Parser::Intern(const std::string& name) {
  const auto [entry, added] =
      symbols_.emplace(name, static_cast<Symbol>(program_.names.size()));
  if (added) program_.names.push_back(name);
  return entry->second;
}

void Parser::ParseAll() {
  program_.body = ParseBlock({});
  if (!unknown_.empty()) throw unknown_.front();
}

// Statements up to a tag that begins with one of `ends`, whose name is the next
// token then; without `ends` up to the end.
Block Parser::ParseBlock(std::initializer_list<std::string_view> ends) {
  const Nested nested(*this);
  Block block;
  while (true) {
    const Position at = Now().at;
    if (Now().type == TokenType::kEnd) {
      if (ends.size() == 0) return block;
      FailHere(StrCat("'{% ", *(ends.end() - 1), " %}'"));
    }
    Statement statement;
    statement.at = at;
    if (Now().type == TokenType::kData) {
      statement.text = Take().text;
    } else if (Now().type == TokenType::kVariableBegin) {
      Take();
      statement.type = StatementType::kOutput;
      statement.expressions.push_back(ParseTuple(true, false));
      if (Now().type != TokenType::kVariableEnd) FailHere("'}}'");
      Take();
    } else {
      Take();  // the beginning of a block
      for (const std::string_view end : ends) {
        if (IsName(end)) return block;
      }
      statement = ParseStatement();
      statement.at = at;
      EndTag();
    }
    block.push_back(std::move(statement));
  }
}

void Parser::EndTag() {
  if (Now().type != TokenType::kBlockEnd) FailHere("'%}'");
  Take();
}

// The rest of a tag and the statements after it.
Block Parser::ParseBody(std::initializer_list<std::string_view> ends) {
  TakeOperator(":");
  EndTag();
  return ParseBlock(ends);
}

Statement Parser::ParseStatement() {
  const Token tag = Now();
  const std::string name = ExpectName("a tag");
  Statement statement;
  if (name == "if") return ParseIf();
  if (name == "for") return ParseFor();
  if (name == "set") return ParseSet();
  if (name == "with") return ParseWith();
  if (name == "macro") return ParseMacro();
  if (name == "call") return ParseCallBlock();
  if (name == "filter") {
    const Restore hard(soft_, false);
    statement.type = StatementType::kFilterBlock;
    statement.expressions.push_back(ParseFilterChain(ParseFilter(nullptr)));
    statement.blocks.push_back(ParseBody({"endfilter"}));
    Take();
    return statement;
  }
  if (name == "generation") {
    const Restore hard(soft_, false);
    statement.type = StatementType::kScope;
    statement.blocks.push_back(ParseBody({"endgeneration"}));
    Take();
    return statement;
  }
  if (name == "break" || name == "continue") {
    if (loops_ == 0)
      FailAt(tag.at, StrCat("a loop around '", name, "'"), "none");
    statement.type =
        name == "break" ? StatementType::kBreak : StatementType::kContinue;
    return statement;
  }
  FailAt(tag.at,
         "a tag of if, for, set, with, macro, call, filter, generation, break "
         "or continue",
         Quoted(name));
}

Statement Parser::ParseIf() {
  const Restore soft(soft_, true);
  Statement statement;
  statement.type = StatementType::kIf;
  while (true) {
    statement.expressions.push_back(ParseTuple(false, false));
    statement.blocks.push_back(ParseBody({"elif", "else", "endif"}));
    const std::string next = Take().text;
    if (next == "elif") continue;
    if (next == "else") {
      statement.blocks.push_back(ParseBody({"endif"}));
      Take();
    }
    return statement;
  }
}

Statement Parser::ParseFor() {
  Statement statement;
  statement.type = StatementType::kFor;
  statement.targets.push_back(ParseTarget(false));
  if (!TakeName("in")) FailHere("'in'");
  statement.expressions.push_back(ParseTuple(false, false));
  const Restore hard(soft_, false);
  ExpressionPointer filter;
  if (TakeName("if")) filter = ParseExpression();
  statement.expressions.push_back(std::move(filter));
  if (IsName("recursive")) FailHere("a loop without recursion");
  {
    const Restore inside(loops_, loops_ + 1);
    statement.blocks.push_back(ParseBody({"endfor", "else"}));
  }
  if (Take().text == "else") {
    statement.blocks.push_back(ParseBody({"endfor"}));
    Take();
  }
  return statement;
}

Statement Parser::ParseSet() {
  Statement statement;
  statement.targets.push_back(ParseTarget(true));
  if (TakeOperator("=")) {
    statement.type = StatementType::kSet;
    statement.expressions.push_back(ParseTuple(true, false));
    return statement;
  }
  const Restore hard(soft_, false);
  statement.type = StatementType::kSetBlock;
  statement.expressions.push_back(ParseFilterChain(nullptr));
  statement.blocks.push_back(ParseBody({"endset"}));
  Take();
  return statement;
}

Statement Parser::ParseWith() {
  const Restore hard(soft_, false);
  Statement statement;
  statement.type = StatementType::kWith;
  while (Now().type != TokenType::kBlockEnd) {
    if (!statement.targets.empty()) Expect(",");
    statement.targets.push_back(ParseOneTarget(false));
    Expect("=");
    statement.expressions.push_back(ParseExpression());
  }
  statement.blocks.push_back(ParseBody({"endwith"}));
  Take();
  return statement;
}

void Parser::ParseSignature(MacroDefinition& macro) {
  Expect("(");
  while (!IsOperator(")")) {
    if (!macro.parameters.empty()) Expect(",");
    const Position at = Now().at;
    const std::string name = ExpectName("a parameter");
    if (std::find(macro.names.begin(), macro.names.end(), name) !=
        macro.names.end()) {
      FailAt(at, "parameters with different names", Quoted(name));
    }
    macro.names.push_back(name);
    macro.parameters.push_back(Intern(name));
    if (TakeOperator("=")) {
      macro.defaults.push_back(ParseExpression());
    } else if (!macro.defaults.empty()) {
      FailHere("'=' (a default, as the parameter before has one)");
    }
  }
  Expect(")");
}

Block Parser::ParseMacroBody(MacroDefinition& macro, std::string_view end) {
  const Restore hard(soft_, false);
  const Restore outside(loops_, 0);
  macros_.push_back(&macro);
  Block body = ParseBody({end});
  macros_.pop_back();
  Take();
  const auto parameter = [&](std::string_view name) {
    return std::find(macro.names.begin(), macro.names.end(), name) !=
           macro.names.end();
  };
  if (parameter("varargs")) macro.uses_varargs = false;
  if (parameter("kwargs")) macro.uses_kwargs = false;
  return body;
}

Statement Parser::ParseMacro() {
  Statement statement;
  statement.type = StatementType::kMacro;
  statement.macro = std::make_unique<MacroDefinition>();
  Target target;
  target.at = Now().at;
  statement.macro->name = ExpectName("a macro's name");
  target.symbol = Intern(statement.macro->name);
  statement.targets.push_back(std::move(target));
  const Restore hard(soft_, false);
  ParseSignature(*statement.macro);
  statement.macro->body = ParseMacroBody(*statement.macro, "endmacro");
  return statement;
}

Statement Parser::ParseCallBlock() {
  Statement statement;
  statement.type = StatementType::kCallBlock;
  statement.macro = std::make_unique<MacroDefinition>();
  statement.macro->name = "caller";
  if (IsOperator("(")) ParseSignature(*statement.macro);
  statement.expressions.push_back(ParseExpression());
  if (statement.expressions[0]->type != ExpressionType::kCall) {
    FailAt(statement.expressions[0]->at, "a call of a macro",
           "another expression");
  }
  statement.macro->body = ParseMacroBody(*statement.macro, "endcall");
  return statement;
}

Target Parser::ParseOneTarget(bool attributes) {
  const Nested nested(*this);
  if (TakeOperator("(")) {
    Target inner = ParseTarget(attributes);
    Expect(")");
    return inner;
  }
  Target target;
  target.at = Now().at;
  const std::string name = ExpectName("a variable to assign to");
  for (const char* constant :
       {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant)
      FailAt(target.at, "a variable to assign to", Quoted(name));
  }
  target.symbol = Intern(name);
  if (attributes && TakeOperator(".")) {
    target.type = Target::kAttribute;
    target.attribute = ExpectName("an attribute");
  }
  return target;
}

Target Parser::ParseTarget(bool attributes) {
  Target first = ParseOneTarget(attributes);
  if (!IsOperator(",")) return first;
  Target tuple;
  tuple.type = Target::kTuple;
  tuple.at = first.at;
  tuple.parts.push_back(std::move(first));
  while (TakeOperator(",")) {
    if (Now().type != TokenType::kName && !IsOperator("(")) break;
    if (IsName("in")) break;
    tuple.parts.push_back(ParseOneTarget(attributes));
  }
  return tuple;
}

std::unique_ptr<const Program> ParseProgram(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    Fail(StrCat("a source of at most ", kMaxTemplateBytes, " bytes"),
         StrCat(source.size()));
  }
  auto program = std::make_unique<Program>();
  Parser(Tokenize(source), *program).ParseAll();
  return program;
}

}  // namespace tarn::jinja
