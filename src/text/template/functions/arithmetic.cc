// Python's operators: + - * / // % ** and the sign.
#include <cmath>

#include "text/template/interpreter.h"

namespace tarn::jinja {
namespace {

int64_t Integer(const Value& value) {
  const int64_t* number = value.If<int64_t>();
  return number != nullptr ? *number : *value.If<bool>();
}

double Real(const Value& value) {
  const double* number = value.If<double>();
  return number != nullptr ? *number : static_cast<double>(Integer(value));
}

[[noreturn]] void FailRange() {
  Fail("a result of 64 bits", "an integer beyond them");
}

[[noreturn]] void FailZero() { Fail("a divisor other than 0", "0"); }

int64_t Power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      FailRange();
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) FailRange();
  }
  return result;
}

Value Integers(Operation operation, int64_t a, int64_t b) {
  int64_t result = 0;
  bool over = false;
  switch (operation) {
    case Operation::kAdd:
      over = __builtin_add_overflow(a, b, &result);
      break;
    case Operation::kSub:
      over = __builtin_sub_overflow(a, b, &result);
      break;
    case Operation::kMul:
      over = __builtin_mul_overflow(a, b, &result);
      break;
    case Operation::kDiv:
      if (b == 0) FailZero();
      return static_cast<double>(a) / static_cast<double>(b);
    case Operation::kFloorDiv:
    case Operation::kMod: {
      if (b == 0) FailZero();
      if (b == -1) {  // the quotient of the least number is beyond 64 bits
        if (operation == Operation::kMod) return int64_t{0};
        over = __builtin_sub_overflow(int64_t{0}, a, &result);
        break;
      }
      int64_t quotient = a / b, rest = a % b;
      if (rest != 0 && (rest < 0) != (b < 0)) {
        rest += b;
        --quotient;
      }
      return operation == Operation::kMod ? rest : quotient;
    }
    case Operation::kPow:
      if (b >= 0) return Power(a, b);
      if (a == 0) FailZero();
      return std::pow(static_cast<double>(a), static_cast<double>(b));
  }
  if (over) FailRange();
  return result;
}

Value Reals(Operation operation, double a, double b) {
  switch (operation) {
    case Operation::kAdd:
      return a + b;
    case Operation::kSub:
      return a - b;
    case Operation::kMul:
      return a * b;
    case Operation::kDiv:
      if (b == 0) FailZero();
      return a / b;
    case Operation::kFloorDiv:
    case Operation::kMod: {
      if (b == 0) FailZero();
      double rest = std::fmod(a, b);
      double quotient = (a - rest) / b;
      if (rest != 0 && (rest < 0) != (b < 0)) {
        rest += b;
        quotient -= 1;
      } else if (rest == 0) {
        rest = std::copysign(0.0, b);
      }
      if (operation == Operation::kMod) return rest;
      const double floor = std::floor(quotient);
      return quotient == 0 ? std::copysign(0.0, a / b)
                           : (quotient - floor > 0.5 ? floor + 1 : floor);
    }
    case Operation::kPow:
      break;
  }
  if (a == 0 && b < 0) FailZero();
  const double result = std::pow(a, b);
  if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
    Fail("a power that is a real number", "a complex one");
  }
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    Fail("a power within a double's range", "a larger one");
  }
  return result;
}

Value AddTexts(Machine& machine, const Text& a, const Text& b) {
  Budget& budget = machine.budget();
  TextBuilder out(&budget);
  const bool markup = a.markup || b.markup;
  out.Append(markup && !a.markup ? Escaped(budget, a.marked) : a.marked);
  out.Append(markup && !b.markup ? Escaped(budget, b.marked) : b.marked);
  return MakeText(&budget, out.Take(), markup);
}

// Text or a list, repeated; null if the values are neither.
Value Repeated(Machine& machine, const Value& value, int64_t times) {
  Budget& budget = machine.budget();
  if (const Text* text = value.text()) {
    // A block of copies at a time, so that steps count bytes.
    TextBuilder block(&budget), out(&budget);
    constexpr size_t kBlockBytes = 4096;
    int64_t copies = 0;
    if (text->marked.size() == 0) times = 0;
    while (copies < times && block.text().size() < kBlockBytes) {
      block.Append(text->marked);
      ++copies;
    }
    for (; times >= copies && copies > 0; times -= copies) {
      out.Append(block.text());
    }
    for (; times > 0; --times) out.Append(text->marked);
    return MakeText(&budget, out.Take(), text->markup);
  }
  const Row& row = *value.row();
  std::vector<Value> items;
  Account account(&budget, 0);
  for (int64_t i = 0; i < times && !row.items.empty(); ++i) {
    budget.Step(1 + row.items.size() / 8);
    account.Grow((items.size() + row.items.size()) * sizeof(Value));
    items.insert(items.end(), row.items.begin(), row.items.end());
  }
  return MakeRow(&budget, row.type, std::move(items));
}

bool Repeats(const Value& value) {
  const Row* row = value.row();
  return value.text() != nullptr ||
         (row != nullptr && row->type <= RowType::kTuple);
}

}  // namespace

Value Arithmetic(Machine& machine, Operation operation, const Value& left,
                 const Value& right) {
  if (left.number() && right.number()) {
    if (left.integral() && right.integral()) {
      return Integers(operation, Integer(left), Integer(right));
    }
    return Reals(operation, Real(left), Real(right));
  }
  const Text *a = left.text(), *b = right.text();
  if (operation == Operation::kAdd && a != nullptr && b != nullptr) {
    return AddTexts(machine, *a, *b);
  }
  if (operation == Operation::kMod && a != nullptr) {
    return machine.MakeString(PercentText(machine, a->marked, right));
  }
  if (operation == Operation::kMul) {
    if (Repeats(left) && right.integral()) {
      return Repeated(machine, left, Integer(right));
    }
    if (Repeats(right) && left.integral()) {
      return Repeated(machine, right, Integer(left));
    }
  }
  const Row *x = left.row(), *y = right.row();
  if (operation == Operation::kAdd && x != nullptr && y != nullptr &&
      x->type == y->type && x->type <= RowType::kTuple) {
    std::vector<Value> items = x->items;
    items.insert(items.end(), y->items.begin(), y->items.end());
    return MakeRow(&machine.budget(), x->type, std::move(items));
  }
  constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  Fail(StrCat("values for the operator ",
              kSigns[static_cast<size_t>(operation)]),
       StrCat(Describe(left), " and ", Describe(right)));
}

Value Minus(const Value& value) {
  if (const double* number = value.If<double>()) return -*number;
  if (!value.integral()) Fail("a number after '-'", Describe(value));
  int64_t result = 0;
  if (__builtin_sub_overflow(int64_t{0}, Integer(value), &result)) FailRange();
  return result;
}

}  // namespace tarn::jinja
