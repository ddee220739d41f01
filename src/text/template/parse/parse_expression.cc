// Expressions, in Jinja's order of precedence.
#include <algorithm>

#include "core/text.h"
#include "text/template/functions/functions.h"
#include "text/template/parse/parser.h"

namespace tarn::jinja {
namespace {

std::vector<ExpressionPointer> List(ExpressionPointer a) {
  std::vector<ExpressionPointer> list;
  list.push_back(std::move(a));
  return list;
}

std::vector<ExpressionPointer> List(ExpressionPointer a, ExpressionPointer b) {
  std::vector<ExpressionPointer> list = List(std::move(a));
  list.push_back(std::move(b));
  return list;
}

}  // namespace

ExpressionPointer Parser::Make(ExpressionType type, Position at,
                               std::vector<ExpressionPointer> operands) {
  auto made = std::make_unique<Expression>();
  made->type = type;
  made->at = at;
  for (const ExpressionPointer& operand : operands) {
    if (operand) made->depth = std::max(made->depth, operand->depth + 1);
  }
  if (made->depth > kMaxTemplateDepth) {
    FailAt(at, StrCat("at most ", kMaxTemplateDepth, " levels of operators"),
           "more");
  }
  made->operands = std::move(operands);
  return made;
}

ExpressionPointer Parser::Constant(Position at, Value value) {
  ExpressionPointer made = Make(ExpressionType::kConstant, at);
  made->constant = std::move(value);
  return made;
}

bool Parser::TupleEnds() const {
  return Now().type == TokenType::kVariableEnd ||
         Now().type == TokenType::kBlockEnd || IsOperator(")");
}

ExpressionPointer Parser::ParseTuple(bool conditions, bool parentheses) {
  const Nested nested(*this);
  const Position at = Now().at;
  std::vector<ExpressionPointer> items;
  bool tuple = false;
  while (!TupleEnds()) {
    items.push_back(ParseExpression(conditions));
    if (!TakeOperator(",")) break;
    tuple = true;
  }
  if (!tuple && items.size() == 1) return std::move(items[0]);
  if (!tuple && !parentheses) FailHere("an expression");
  return Make(ExpressionType::kTuple, at, std::move(items));
}

ExpressionPointer Parser::ParseExpression(bool conditions) {
  const Nested nested(*this);
  const size_t unknown = unknown_.size();
  ExpressionPointer value = ParseOr();
  while (conditions && IsName("if")) {
    const Position at = Take().at;
    unknown_.resize(unknown);  // what comes before is conditional as well
    const bool soft = soft_;
    soft_ = true;
    std::vector<ExpressionPointer> operands = List(std::move(value), ParseOr());
    operands.push_back(TakeName("else") ? ParseExpression() : nullptr);
    soft_ = soft;
    value = Make(ExpressionType::kCondition, at, std::move(operands));
  }
  return value;
}

ExpressionPointer Parser::ParseOr() {
  ExpressionPointer left = ParseAnd();
  while (IsName("or")) {
    const Position at = Take().at;
    ExpressionPointer right = ParseAnd();
    left =
        Make(ExpressionType::kOr, at, List(std::move(left), std::move(right)));
  }
  return left;
}

ExpressionPointer Parser::ParseAnd() {
  ExpressionPointer left = ParseNot();
  while (IsName("and")) {
    const Position at = Take().at;
    ExpressionPointer right = ParseNot();
    left =
        Make(ExpressionType::kAnd, at, List(std::move(left), std::move(right)));
  }
  return left;
}

ExpressionPointer Parser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  const Nested nested(*this);
  const Position at = Take().at;
  return Make(ExpressionType::kNot, at, List(ParseNot()));
}

ExpressionPointer Parser::ParseCompare() {
  ExpressionPointer first = ParseSum();
  constexpr std::string_view kTexts[] = {"==", "!=", "<", "<=", ">", ">="};
  std::vector<ExpressionPointer> operands = List(std::move(first));
  std::vector<Comparison> comparisons;
  const Position at = Now().at;
  while (true) {
    const auto* found =
        Now().type == TokenType::kOperator
            ? std::find(std::begin(kTexts), std::end(kTexts), Now().text)
            : std::end(kTexts);
    if (found != std::end(kTexts)) {
      Take();
      comparisons.push_back(static_cast<Comparison>(found - kTexts));
    } else if (TakeName("in")) {
      comparisons.push_back(Comparison::kIn);
    } else if (IsName("not") && Next().type == TokenType::kName &&
               Next().text == "in") {
      Take();
      Take();
      comparisons.push_back(Comparison::kNotIn);
    } else {
      break;
    }
    operands.push_back(ParseSum());
  }
  if (comparisons.empty()) return std::move(operands[0]);
  ExpressionPointer made =
      Make(ExpressionType::kCompare, at, std::move(operands));
  made->comparisons = std::move(comparisons);
  return made;
}

ExpressionPointer Parser::ParseSum() {
  ExpressionPointer left = ParseConcat();
  while (IsOperator("+") || IsOperator("-")) {
    const Token token = Take();
    ExpressionPointer right = ParseConcat();
    left = Make(ExpressionType::kArithmetic, token.at,
                List(std::move(left), std::move(right)));
    left->operation = token.text == "+" ? Operation::kAdd : Operation::kSub;
  }
  return left;
}

ExpressionPointer Parser::ParseConcat() {
  const Position at = Now().at;
  std::vector<ExpressionPointer> operands = List(ParseProduct());
  while (TakeOperator("~")) operands.push_back(ParseProduct());
  if (operands.size() == 1) return std::move(operands[0]);
  return Make(ExpressionType::kConcat, at, std::move(operands));
}

ExpressionPointer Parser::ParseProduct() {
  ExpressionPointer left = ParsePower();
  while (IsOperator("*") || IsOperator("/") || IsOperator("//") ||
         IsOperator("%")) {
    const Token token = Take();
    ExpressionPointer right = ParsePower();
    left = Make(ExpressionType::kArithmetic, token.at,
                List(std::move(left), std::move(right)));
    left->operation = token.text == "*"    ? Operation::kMul
                      : token.text == "/"  ? Operation::kDiv
                      : token.text == "//" ? Operation::kFloorDiv
                                           : Operation::kMod;
  }
  return left;
}

ExpressionPointer Parser::ParsePower() {
  ExpressionPointer left = ParseUnary();
  while (IsOperator("**")) {
    const Position at = Take().at;
    ExpressionPointer right = ParseUnary();
    left = Make(ExpressionType::kArithmetic, at,
                List(std::move(left), std::move(right)));
    left->operation = Operation::kPow;
  }
  return left;
}

ExpressionPointer Parser::ParseUnary(bool filters) {
  const Position at = Now().at;
  ExpressionPointer value;
  if (IsOperator("-") || IsOperator("+")) {
    const Nested nested(*this);
    const bool minus = Take().text == "-";
    value = Make(minus ? ExpressionType::kMinus : ExpressionType::kPlus, at,
                 List(ParseUnary(false)));
  } else {
    value = ParsePrimary();
  }
  value = ParsePostfix(std::move(value));
  return filters ? ParseFiltersAndTests(std::move(value)) : std::move(value);
}

ExpressionPointer Parser::ParsePrimary() {
  const Token& token = Now();
  const Position at = token.at;
  switch (token.type) {
    case TokenType::kName:
      return ParseName();
    case TokenType::kString: {
      std::string text = Take().text;
      while (Now().type == TokenType::kString) text += Take().text;
      return Constant(at, MakeText(nullptr, text));
    }
    case TokenType::kInteger:
      return Constant(at, Take().integer);
    case TokenType::kFloat:
      return Constant(at, Take().real);
    default:
      break;
  }
  if (TakeOperator("(")) {
    ExpressionPointer value = ParseTuple(true, true);
    Expect(")");
    return value;
  }
  if (IsOperator("[")) return ParseList();
  if (IsOperator("{")) return ParseDictionary();
  FailHere("an expression");
}

ExpressionPointer Parser::ParseName() {
  const Token token = Take();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return Constant(token.at, true);
  if (name == "false" || name == "False") return Constant(token.at, false);
  if (name == "none" || name == "None") return Constant(token.at, None{});
  for (MacroDefinition* macro : macros_) {
    if (name == "caller") macro->uses_caller = true;
    if (name == "varargs") macro->uses_varargs = true;
    if (name == "kwargs") macro->uses_kwargs = true;
  }
  ExpressionPointer made = Make(ExpressionType::kName, token.at);
  made->symbol = Intern(name);
  return made;
}

ExpressionPointer Parser::ParseList() {
  const Position at = Take().at;
  std::vector<ExpressionPointer> items;
  while (!IsOperator("]")) {
    if (!items.empty()) Expect(",");
    if (IsOperator("]")) break;
    items.push_back(ParseExpression());
  }
  Expect("]");
  return Make(ExpressionType::kList, at, std::move(items));
}

ExpressionPointer Parser::ParseDictionary() {
  const Position at = Take().at;
  std::vector<ExpressionPointer> items;
  while (!IsOperator("}")) {
    if (!items.empty()) Expect(",");
    if (IsOperator("}")) break;
    items.push_back(ParseExpression());
    Expect(":");
    items.push_back(ParseExpression());
  }
  Expect("}");
  return Make(ExpressionType::kDictionary, at, std::move(items));
}

ExpressionPointer Parser::ParsePostfix(ExpressionPointer value) {
  while (true) {
    if (IsOperator(".") || IsOperator("[")) {
      value = ParseSubscript(std::move(value));
    } else if (IsOperator("(")) {
      value = ParseCall(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPointer Parser::ParseSubscript(ExpressionPointer value) {
  const Token token = Take();
  if (token.text == ".") {
    if (Now().type == TokenType::kInteger) {
      ExpressionPointer index = Constant(Now().at, Now().integer);
      Take();
      return Make(ExpressionType::kItem, token.at,
                  List(std::move(value), std::move(index)));
    }
    std::string name = ExpectName("a name or a number after '.'");
    ExpressionPointer made =
        Make(ExpressionType::kAttribute, token.at, List(std::move(value)));
    made->constant = MakeText(nullptr, name);
    made->text = std::move(name);
    return made;
  }
  std::vector<ExpressionPointer> parts = List(std::move(value));
  if (!IsOperator(":")) {
    parts.push_back(ParseTuple(true, false));
    if (TakeOperator("]")) {
      return Make(ExpressionType::kItem, token.at, std::move(parts));
    }
  } else {
    parts.push_back(nullptr);
  }
  for (int i = 0; i < 2; ++i) {
    const bool more = TakeOperator(":");
    parts.push_back(more && !IsOperator("]") && !IsOperator(":")
                        ? ParseExpression()
                        : nullptr);
  }
  Expect("]");
  return Make(ExpressionType::kSlice, token.at, std::move(parts));
}

ExpressionPointer Parser::ParseFiltersAndTests(ExpressionPointer value) {
  while (true) {
    if (TakeOperator("|")) {
      value = ParseFilter(std::move(value));
    } else if (IsName("is")) {
      value = ParseTest(std::move(value));
    } else if (IsOperator("(")) {
      value = ParseCall(std::move(value));
    } else {
      return value;
    }
  }
}

// From the filter's name on.
ExpressionPointer Parser::ParseFilter(ExpressionPointer value) {
  const Position at = Now().at;
  std::string name = ExpectName("a filter");
  ExpressionPointer made =
      Make(ExpressionType::kFilter, at, List(std::move(value)));
  if (IsOperator("(")) made->arguments = ParseArguments(made->depth);
  made->filter = FindFilter(name);
  made->text = std::move(name);
  if (made->filter == nullptr && !soft_) {
    unknown_.push_back({ErrorCode::kFormat, "a filter that is supported",
                        Quoted(made->text), at});
  }
  return made;
}

ExpressionPointer Parser::ParseFilterChain(ExpressionPointer value) {
  while (TakeOperator("|")) value = ParseFilter(std::move(value));
  return value;
}

ExpressionPointer Parser::ParseTest(ExpressionPointer value) {
  const Position at = Take().at;
  const bool negated = TakeName("not");
  std::string name = ExpectName("a test");
  ExpressionPointer made =
      Make(ExpressionType::kTest, at, List(std::move(value)));
  const TokenType type = Now().type;
  const bool literal =
      (type == TokenType::kName && !IsName("else") && !IsName("or") &&
       !IsName("and")) ||
      type == TokenType::kString || type == TokenType::kInteger ||
      type == TokenType::kFloat || IsOperator("[") || IsOperator("{");
  if (IsOperator("(")) {
    made->arguments = ParseArguments(made->depth);
  } else if (literal) {
    if (IsName("is")) FailHere("one test ('is' cannot follow a test)");
    ExpressionPointer argument = ParsePostfix(ParsePrimary());
    made->depth = std::max(made->depth, argument->depth + 1);
    made->arguments.positional.push_back(std::move(argument));
  }
  made->test = FindTest(name);
  made->text = std::move(name);
  if (made->test == nullptr && !soft_) {
    unknown_.push_back({ErrorCode::kFormat, "a test that is supported",
                        Quoted(made->text), at});
  }
  if (!negated) return made;
  return Make(ExpressionType::kNot, at, List(std::move(made)));
}

ExpressionPointer Parser::ParseCall(ExpressionPointer function) {
  const Position at = Now().at;
  ExpressionPointer made =
      Make(ExpressionType::kCall, at, List(std::move(function)));
  made->arguments = ParseArguments(made->depth);
  return made;
}

CallArguments Parser::ParseArguments(uint32_t& depth) {
  const Nested nested(*this);
  CallArguments arguments;
  const auto deeper = [&](const ExpressionPointer& value) {
    depth = std::max(depth, value->depth + 1);
  };
  Expect("(");
  bool first = true;
  while (!IsOperator(")")) {
    if (!first) {
      Expect(",");
      if (IsOperator(")")) break;
    }
    first = false;
    if (IsOperator("*") && !arguments.star && !arguments.double_star) {
      Take();
      arguments.star = ParseExpression();
      deeper(arguments.star);
    } else if (IsOperator("**") && !arguments.double_star) {
      Take();
      arguments.double_star = ParseExpression();
      deeper(arguments.double_star);
    } else if (Now().type == TokenType::kName &&
               Next().type == TokenType::kOperator && Next().text == "=" &&
               !arguments.double_star) {
      std::string name = Take().text;
      Take();
      arguments.named.emplace_back(std::move(name), ParseExpression());
      deeper(arguments.named.back().second);
    } else if (!arguments.star && !arguments.double_star &&
               arguments.named.empty()) {
      arguments.positional.push_back(ParseExpression());
      deeper(arguments.positional.back());
    } else {
      FailHere("an argument with a name");
    }
  }
  Expect(")");
  return arguments;
}

}  // namespace tarn::jinja
