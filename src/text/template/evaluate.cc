// Expressions.
#include "core/text.h"
#include "text/template/interpreter.h"

namespace tarn::jinja {

Value Machine::Name(Symbol symbol) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent()) {
    budget_.Step(1 + scope->size() / 8);
    if (const Value* found = scope->Find(symbol)) return *found;
  }
  if (variables_[symbol]) return *variables_[symbol];
  const std::string& name = program_.names[symbol];
  Value global = GlobalOf(name);
  if (!global.undefined()) return global;
  return MakeUndefined(StrCat(Quoted(name), " is undefined"));
}

Value Machine::Evaluate(const Expression& expression) {
  const Deeper deeper(budget_);
  budget_.Step();
  at_ = expression.at;
  switch (expression.type) {
    case ExpressionType::kConstant:
      return expression.constant;
    case ExpressionType::kName:
      return Name(expression.symbol);
    case ExpressionType::kCall:
      return EvaluateCall(expression);
    case ExpressionType::kFilter:
      return EvaluateFilter(expression);
    case ExpressionType::kTest:
      return EvaluateTest(expression);
    default:
      return Dispatch(expression);
  }
}

Value Machine::Dispatch(const Expression& expression) {
  const auto operand = [&](size_t i) {
    const Expression* given = expression.operands[i].get();
    Value value = given != nullptr ? Evaluate(*given) : Value(None{});
    at_ = expression.at;
    return value;
  };
  switch (expression.type) {
    case ExpressionType::kAttribute:
      return Attribute(*this, operand(0), expression.constant);
    case ExpressionType::kItem: {
      const Value value = operand(0);
      return Item(*this, value, operand(1));
    }
    case ExpressionType::kSlice: {
      const Value value = operand(0), begin = operand(1), end = operand(2);
      return Slice(*this, value, begin, end, operand(3));
    }
    case ExpressionType::kNot:
      return !Truth(operand(0));
    case ExpressionType::kMinus:
      return Minus(operand(0));
    case ExpressionType::kPlus: {
      Value value = operand(0);
      if (!value.number()) Fail("a number after '+'", Describe(value));
      if (const bool* flag = value.If<bool>()) return int64_t{*flag};
      return value;
    }
    case ExpressionType::kArithmetic: {
      const Value left = operand(0);
      return Arithmetic(*this, expression.operation, left, operand(1));
    }
    case ExpressionType::kAnd: {
      Value left = operand(0);
      return Truth(left) ? operand(1) : left;
    }
    case ExpressionType::kOr: {
      Value left = operand(0);
      return Truth(left) ? left : operand(1);
    }
    case ExpressionType::kCondition:
      if (Truth(operand(1))) return operand(0);
      if (expression.operands[2] != nullptr) return operand(2);
      return MakeUndefined("the condition is false and there is no 'else'");
    case ExpressionType::kConcat:
      return Concat(expression);
    case ExpressionType::kCompare:
      return Compare(expression);
    default:
      return Rows(expression);
  }
}

Value Machine::Concat(const Expression& expression) {
  TextBuilder out(&budget_);
  for (const ExpressionPointer& operand : expression.operands) {
    AppendStr(out, Evaluate(*operand));
  }
  return MakeString(out.Take());
}

Value Machine::Rows(const Expression& expression) {
  std::vector<Value> items;
  items.reserve(expression.operands.size());
  for (const ExpressionPointer& operand : expression.operands) {
    items.push_back(Evaluate(*operand));
  }
  at_ = expression.at;
  if (expression.type == ExpressionType::kDictionary) {
    DictionaryBuilder made(&budget_);
    for (size_t i = 0; i < items.size(); i += 2) {
      made.Set(std::move(items[i]), std::move(items[i + 1]));
    }
    return made.Take();
  }
  return MakeRow(&budget_,
                 expression.type == ExpressionType::kList ? RowType::kList
                                                          : RowType::kTuple,
                 std::move(items));
}

Value Machine::Compare(const Expression& expression) {
  Value left = Evaluate(*expression.operands[0]);
  for (size_t i = 0; i < expression.comparisons.size(); ++i) {
    Value right = Evaluate(*expression.operands[i + 1]);
    at_ = expression.at;
    bool holds = false;
    switch (expression.comparisons[i]) {
      case Comparison::kEq:
        holds = Equal(budget_, left, right);
        break;
      case Comparison::kNe:
        holds = !Equal(budget_, left, right);
        break;
      case Comparison::kLt:
        holds = Less(budget_, left, right);
        break;
      case Comparison::kLe:
        holds = Less(budget_, left, right) || Equal(budget_, left, right);
        break;
      case Comparison::kGt:
        holds = Less(budget_, right, left);
        break;
      case Comparison::kGe:
        holds = Less(budget_, right, left) || Equal(budget_, left, right);
        break;
      case Comparison::kIn:
        holds = Contains(budget_, right, left);
        break;
      case Comparison::kNotIn:
        holds = !Contains(budget_, right, left);
        break;
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Machine::EvaluateFilter(const Expression& expression) {
  const Value value = Evaluate(*expression.operands[0]);
  const Arguments arguments = EvaluateArguments(expression.arguments);
  at_ = expression.at;
  if (expression.filter == nullptr) {
    Fail("a filter that is supported", Quoted(expression.text));
  }
  return expression.filter->run(*this, value, arguments);
}

Value Machine::EvaluateTest(const Expression& expression) {
  const Value value = Evaluate(*expression.operands[0]);
  const Arguments arguments = EvaluateArguments(expression.arguments);
  at_ = expression.at;
  if (expression.test == nullptr) {
    Fail("a test that is supported", Quoted(expression.text));
  }
  return expression.test->run(*this, value, arguments);
}

Value Machine::EvaluateCall(const Expression& expression) {
  const Value function = Evaluate(*expression.operands[0]);
  const Arguments arguments = EvaluateArguments(expression.arguments);
  at_ = expression.at;
  return Call(function, arguments);
}

Arguments Machine::EvaluateArguments(const CallArguments& arguments) {
  Arguments values;
  for (const ExpressionPointer& value : arguments.positional) {
    values.positional.push_back(Evaluate(*value));
  }
  for (const auto& [name, value] : arguments.named) {
    values.named.emplace_back(name, Evaluate(*value));
  }
  if (arguments.star != nullptr) {
    for (Value& item : Items(*this, Evaluate(*arguments.star))) {
      values.positional.push_back(std::move(item));
    }
  }
  if (arguments.double_star != nullptr) {
    const Value rest = Evaluate(*arguments.double_star);
    const Dictionary* dictionary = rest.dictionary();
    if (dictionary == nullptr) Fail("an object after '**'", Describe(rest));
    for (const auto& [key, value] : dictionary->items) {
      const Text* name = key.text();
      if (name == nullptr) Fail("names as keys after '**'", Describe(key));
      values.named.emplace_back(name->marked.text(), value);
    }
  }
  for (size_t i = 0; i < values.named.size(); ++i) {
    budget_.Step(1 + i / 8);
    for (size_t j = 0; j < i; ++j) {
      if (values.named[j].first == values.named[i].first) {
        Fail("arguments with different names", Quoted(values.named[i].first));
      }
    }
  }
  return values;
}

}  // namespace tarn::jinja
