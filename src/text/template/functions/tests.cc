// What follows `is`.
#include "text/template/interpreter.h"
#include "text/template/values/python_text.h"

namespace tarn::jinja {
namespace {

template <bool (*holds)(const Value& value)>
bool Of(Machine&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "the test", {});
  return holds(value);
}

bool Defined(const Value& value) { return !value.undefined(); }
bool NotDefined(const Value& value) { return value.undefined(); }
bool IsNone(const Value& value) { return value.none(); }
bool Boolean(const Value& value) { return value.If<bool>() != nullptr; }
bool True(const Value& value) { return Boolean(value) && *value.If<bool>(); }
bool False(const Value& value) { return Boolean(value) && !*value.If<bool>(); }
bool Whole(const Value& value) { return value.If<int64_t>() != nullptr; }
bool IsReal(const Value& value) { return value.If<double>() != nullptr; }
bool Number(const Value& value) { return value.number(); }
bool IsText(const Value& value) { return value.text() != nullptr; }
bool Mapping(const Value& value) { return value.dictionary() != nullptr; }
// Undefined is one as well: it has a length and items in Jinja.
bool Sequence(const Value& value) {
  const Row* row = value.row();
  return value.undefined() || value.text() != nullptr ||
         value.dictionary() != nullptr ||
         (row != nullptr && row->type <= RowType::kRange);
}
bool Iterable(const Value& value) {
  return value.undefined() || value.text() != nullptr ||
         value.dictionary() != nullptr || value.row() != nullptr ||
         value.If<std::shared_ptr<LoopState>>() != nullptr;
}
bool Callable(const Value& value) {
  return value.undefined() || value.If<MacroObject*>() != nullptr ||
         value.If<Builtin>() != nullptr ||
         value.If<MethodPointer>() != nullptr ||
         value.If<std::shared_ptr<LoopState>>() != nullptr;
}
bool IsEscaped(const Value& value) {
  return value.text() != nullptr && value.text()->markup;
}

bool Divisible(Machine& machine, const Value& value, const Value& by,
               int64_t rest) {
  return Equal(machine.budget(),
               Arithmetic(machine, Operation::kMod, value, by), rest);
}
// The operator % formats text, which then equals no number.
bool Odd(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "odd", {});
  return Divisible(machine, value, int64_t{2}, 1);
}
bool Even(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "even", {});
  return Divisible(machine, value, int64_t{2}, 0);
}
bool DivisibleBy(Machine& machine, const Value& value,
                 const Arguments& arguments) {
  const Bound bound(arguments, "divisibleby", {"num"}, 1);
  return Divisible(machine, value, bound[0], 0);
}

template <bool upper>
bool InCase(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, upper ? "upper" : "lower", {});
  const Value text = machine.MakeString(Str(machine.budget(), value));
  return Truth(
      CallTextMethod(machine, text, upper ? "isupper" : "islower", {}));
}

bool EqualTo(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "eq", {""}, 1);
  return Equal(machine.budget(), value, bound[0]);
}
bool NotEqualTo(Machine& machine, const Value& value,
                const Arguments& arguments) {
  return !EqualTo(machine, value, arguments);
}
template <bool swapped, bool or_equal>
bool Ordered(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "the test", {""}, 1);
  Budget& budget = machine.budget();
  const bool less =
      swapped ? Less(budget, bound[0], value) : Less(budget, value, bound[0]);
  return less || (or_equal && Equal(budget, value, bound[0]));
}

// The same object: of equal small values Python has one.
bool SameAs(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "sameas", {"other"}, 1);
  const Value& other = bound[0];
  if (value.held().index() != other.held().index()) return false;
  if (value.row() != nullptr) return value.row() == other.row();
  if (value.dictionary() != nullptr) {
    return value.dictionary() == other.dictionary();
  }
  if (value.undefined()) return false;
  return Equal(machine.budget(), value, other);
}

bool In(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "in", {"seq"}, 1);
  return Contains(machine.budget(), bound[0], value);
}

bool IsFilter(Machine&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "filter", {});
  KeyOf(value);  // a list cannot be looked up, which is an error
  return value.text() != nullptr &&
         FindFilter(value.text()->marked.text()) != nullptr;
}
bool IsTest(Machine&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "test", {});
  KeyOf(value);
  return value.text() != nullptr &&
         FindTest(value.text()->marked.text()) != nullptr;
}

constexpr Test kTests[] = {
    {"boolean", Of<Boolean>},
    {"callable", Of<Callable>},
    {"defined", Of<Defined>},
    {"divisibleby", DivisibleBy},
    {"eq", EqualTo},
    {"equalto", EqualTo},
    {"escaped", Of<IsEscaped>},
    {"even", Even},
    {"false", Of<False>},
    {"filter", IsFilter},
    {"float", Of<IsReal>},
    {"ge", Ordered<true, true>},
    {"greaterthan", Ordered<true, false>},
    {"gt", Ordered<true, false>},
    {"in", In},
    {"integer", Of<Whole>},
    {"iterable", Of<Iterable>},
    {"le", Ordered<false, true>},
    {"lessthan", Ordered<false, false>},
    {"lower", InCase<false>},
    {"lt", Ordered<false, false>},
    {"mapping", Of<Mapping>},
    {"ne", NotEqualTo},
    {"none", Of<IsNone>},
    {"number", Of<Number>},
    {"odd", Odd},
    {"sameas", SameAs},
    {"sequence", Of<Sequence>},
    {"string", Of<IsText>},
    {"test", IsTest},
    {"true", Of<True>},
    {"undefined", Of<NotDefined>},
    {"upper", InCase<true>},
    {"==", EqualTo},
    {"!=", NotEqualTo},
    {"<", Ordered<false, false>},
    {"<=", Ordered<false, true>},
    {">", Ordered<true, false>},
    {">=", Ordered<true, true>},
};

}  // namespace

const Test* FindTest(std::string_view name) {
  for (const Test& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

}  // namespace tarn::jinja
