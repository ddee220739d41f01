// Values of a template: Python's, as far as templates can tell.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/template/values/marked_text.h"

namespace tarn::jinja {

class Value;
class Machine;
struct LoopState;
struct MacroObject;
struct NamespaceObject;

struct Text {
  MarkedText marked;
  bool ascii = true;    // a byte is a character
  bool markup = false;  // from the filter `safe`; + then escapes other texts
  Account account;
};
using TextPointer = std::shared_ptr<const Text>;

/// Python's types that are a row of values.
enum class RowType {
  kList,
  kTuple,
  kRange,
  kKeys,
  kValues,
  kItems,
  kGenerator
};
struct Row {
  RowType type = RowType::kList;
  std::vector<Value> items;
  uint32_t depth = 1;  // levels of rows and dictionaries, itself included
  // A generator gives its items once. Rows of a rendering have one thread.
  mutable bool spent = false;
  int64_t range[3] = {0, 0, 1};  // kRange: start, stop, step
  Account account;
};
using RowPointer = std::shared_ptr<const Row>;

/// In order of insertion. Keys are equal by Python's rules: 1, 1.0 and True.
struct Dictionary {
  std::vector<std::pair<Value, Value>> items;
  // From KeyOf's texts to items; empty for few items, which are compared.
  std::unordered_map<std::string, size_t> index;
  uint32_t depth = 1;
  Account account;
};
using DictionaryPointer = std::shared_ptr<const Dictionary>;

/// The functions that a template can name.
enum class Builtin { kRange, kDict, kNamespace, kRaiseException, kStrftimeNow };

struct BoundMethod;
using MethodPointer = std::shared_ptr<const BoundMethod>;

struct Undefined {
  /// Why, in the words of an error: "'x' is undefined". Null: no reason known.
  std::shared_ptr<const std::string> reason;
};
struct None {};

class Value {
 public:
  using Held = std::variant<Undefined, None, bool, int64_t, double, TextPointer,
                            RowPointer, DictionaryPointer, NamespaceObject*,
                            MacroObject*, std::shared_ptr<LoopState>, Builtin,
                            MethodPointer>;
  Value() = default;  // undefined
  template <typename T>
  requires std::constructible_from<Held, T> Value(T held)
      : held_(std::move(held)) {}  // NOLINT: implicit

  const Held& held() const { return held_; }
  template <typename T>
  const T* If() const {
    return std::get_if<T>(&held_);
  }
  const Text* text() const {
    const TextPointer* found = If<TextPointer>();
    return found != nullptr ? found->get() : nullptr;
  }
  const Row* row() const {
    const RowPointer* found = If<RowPointer>();
    return found != nullptr ? found->get() : nullptr;
  }
  const Dictionary* dictionary() const {
    const DictionaryPointer* found = If<DictionaryPointer>();
    return found != nullptr ? found->get() : nullptr;
  }
  bool undefined() const { return If<Undefined>() != nullptr; }
  bool none() const { return If<None>() != nullptr; }
  /// int or bool, which is a number in Python.
  bool integral() const {
    return If<int64_t>() != nullptr || If<bool>() != nullptr;
  }
  bool number() const { return integral() || If<double>() != nullptr; }

 private:
  Held held_;
};

/// A method of a value, before it is called.
struct BoundMethod {
  Value receiver;
  std::string name;
};

/// What {% set ns.name = ... %} writes to.
struct NamespaceObject {
  std::vector<std::pair<std::string, Value>> items;
  Account account;
};

/// "a string", "an integer", "None": a value in an error.
std::string Describe(const Value& value);
/// Python's name of the type: "str".
std::string_view TypeName(const Value& value);

Value MakeText(Budget* budget, MarkedText text, bool markup = false);
inline Value MakeText(Budget* budget, std::string_view text) {
  return MakeText(budget, MarkedText(text, false));
}
Value MakeRow(Budget* budget, RowType type, std::vector<Value> items);
inline Value MakeList(Budget* budget, std::vector<Value> items) {
  return MakeRow(budget, RowType::kList, std::move(items));
}
Value MakeUndefined(std::string reason);

/// Builds a dictionary; a key that is there already gets the new value.
class DictionaryBuilder {
 public:
  explicit DictionaryBuilder(Budget* budget);
  /// Fails for a key that cannot be one, such as a list.
  void Set(Value key, Value value);
  Value Take();

 private:
  Budget* budget_;
  std::shared_ptr<Dictionary> made_;
  uint64_t bytes_ = 0;
};

/// The value of a key, or null. Fails for a key that cannot be one.
const Value* Find(Budget& budget, const Dictionary& dictionary,
                  const Value& key);
const Value* Find(const Dictionary& dictionary, std::string_view key);

/// A text that is equal for keys that Python holds equal.
std::string KeyOf(const Value& key);

/// Python's bool(value).
bool Truth(const Value& value);
/// Python's ==.
bool Equal(Budget& budget, const Value& left, const Value& right);
/// Python's <; fails for values without an order.
bool Less(Budget& budget, const Value& left, const Value& right);
/// Python's `item in container`.
bool Contains(Budget& budget, const Value& container, const Value& item);

/// Python's str(value) and repr(value).
void AppendStr(TextBuilder& out, const Value& value);
void AppendRepr(TextBuilder& out, const Value& value, uint32_t level = 0);
MarkedText Str(Budget& budget, const Value& value);
/// Python's repr of a float, which json.dumps writes as well.
std::string FloatText(double value);

}  // namespace tarn::jinja
