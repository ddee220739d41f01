// Filters, tests, methods and functions: what they take, and where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/values/value.h"

namespace tarn::jinja {

/// The values of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// The arguments of a call in the order of `names`; those that are not given
/// are undefined and `given` is false. A name "" takes no keyword. Fails unless
/// the first `required` are given and all given ones have a name.
class Bound {
 public:
  Bound(const Arguments& arguments, std::string_view function,
        std::initializer_list<std::string_view> names, size_t required = 0);

  bool given(size_t i) const { return given_[i]; }
  /// The argument, which counts as absent if it is None.
  bool some(size_t i) const { return given_[i] && !values_[i].none(); }
  const Value& operator[](size_t i) const { return values_[i]; }
  /// Fail unless the argument has the type.
  const Text& TextAt(size_t i) const;
  int64_t IntegerAt(size_t i) const;
  int64_t IntegerOr(size_t i, int64_t otherwise) const {
    return given_[i] ? IntegerAt(i) : otherwise;
  }
  bool TruthOr(size_t i, bool otherwise) const {
    return given_[i] ? Truth(values_[i]) : otherwise;
  }

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<Value> values_;
  std::vector<bool> given_;
};

struct Filter {
  std::string_view name;
  Value (*run)(Machine& machine, const Value& value,
               const Arguments& arguments);
};
struct Test {
  std::string_view name;
  bool (*run)(Machine& machine, const Value& value, const Arguments& arguments);
};

/// Null if there is none.
const Filter* FindFilter(std::string_view name);
const Test* FindTest(std::string_view name);
/// FindFilter's tables, by the type of what the filters take.
const Filter* FindTextFilter(std::string_view name);
const Filter* FindRowFilter(std::string_view name);

/// The value as the items of a loop: a list, the keys of an object, the
/// characters of a text. Takes the items of a generator.
std::vector<Value> Items(Machine& machine, const Value& value);
/// len(value); fails without one.
int64_t Length(Machine& machine, const Value& value);

/// value.name, the method or attribute before the item; undefined if neither.
Value Attribute(Machine& machine, const Value& value, const Value& name);
/// value[key], the item before the attribute.
Value Item(Machine& machine, const Value& value, const Value& key);
/// value[begin:end:step]; undefined ones are absent.
Value Slice(Machine& machine, const Value& value, const Value& begin,
            const Value& end, const Value& step);
/// Whether Python's type of the value has this method.
bool HasMethod(const Value& value, std::string_view name);
/// Calls a method of a text, list, tuple or object.
Value CallMethod(Machine& machine, const BoundMethod& method,
                 const Arguments& arguments);
Value CallTextMethod(Machine& machine, const Value& receiver,
                     const std::string& name, const Arguments& arguments);

/// left (operation) right, by Python's rules.
enum class Operation : uint8_t;
Value Arithmetic(Machine& machine, Operation operation, const Value& left,
                 const Value& right);
Value Minus(const Value& value);
/// Markup and what is joined to it: < > & ' " as HTML writes them.
MarkedText Escaped(Budget& budget, const MarkedText& text);

/// str.format and the operator %.
MarkedText FormatText(Machine& machine, const MarkedText& format,
                      const Arguments& arguments);
MarkedText PercentText(Machine& machine, const MarkedText& format,
                       const Value& values);

/// json.dumps(value, ...).
MarkedText JsonText(Machine& machine, const Value& value,
                    const Arguments& arguments);

/// time.strftime in the C locale.
std::string FormatTime(const CalendarTime& time, std::string_view format);

/// Text helpers that filters and methods share.
MarkedText Strip(Budget& budget, const MarkedText& text, const Text* characters,
                 bool left, bool right);
MarkedText Replace(Budget& budget, const MarkedText& text,
                   const MarkedText& old, const MarkedText& with,
                   int64_t count);
MarkedText Part(Budget& budget, const MarkedText& text, size_t begin,
                size_t end);
/// str.splitlines.
std::vector<MarkedText> Lines(Budget& budget, const MarkedText& text,
                              bool keep_ends);
/// int(text, base), with white space around it; false if it is none.
bool ReadInteger(std::string_view text, int base, int64_t* value);
/// float(text).
bool ReadFloat(std::string_view text, double* value);

}  // namespace tarn::jinja
