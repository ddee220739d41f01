// Attributes, items, slices and loops over values, by Python's rules in Jinja's
// sandbox: what would change a list or an object is undefined.
#include <algorithm>
#include <iterator>

#include "core/text.h"
#include "text/template/interpreter.h"
#include "text/template/values/python_text.h"

namespace tarn::jinja {
namespace {

constexpr std::string_view kTextMethods[] = {
    "capitalize",   "casefold",     "center",    "count",     "encode",
    "endswith",     "expandtabs",   "find",      "format",    "format_map",
    "index",        "isalnum",      "isalpha",   "isascii",   "isdecimal",
    "isdigit",      "isidentifier", "islower",   "isnumeric", "isprintable",
    "isspace",      "istitle",      "isupper",   "join",      "ljust",
    "lower",        "lstrip",       "maketrans", "partition", "removeprefix",
    "removesuffix", "replace",      "rfind",     "rindex",    "rjust",
    "rpartition",   "rsplit",       "rstrip",    "split",     "splitlines",
    "startswith",   "strip",        "swapcase",  "title",     "translate",
    "upper",        "zfill"};
constexpr std::string_view kListMethods[] = {
    "append", "clear", "copy",   "count",   "extend", "index",
    "insert", "pop",   "remove", "reverse", "sort"};
constexpr std::string_view kTupleMethods[] = {"count", "index"};
constexpr std::string_view kDictionaryMethods[] = {
    "clear", "copy",    "fromkeys",   "get",    "items", "keys",
    "pop",   "popitem", "setdefault", "update", "values"};
// What the sandbox refuses.
constexpr std::string_view kChanging[] = {
    "append", "clear",   "extend",     "insert", "pop",   "popitem",
    "remove", "reverse", "setdefault", "sort",   "update"};

template <size_t n>
bool In(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Value NoAttribute(const Value& value, std::string_view name) {
  return MakeUndefined(StrCat(Quoted(StrCat(TypeName(value), " object")),
                              " has no attribute ", Quoted(name)));
}

// Python's getattr, or undefined with *found false.
Value OwnAttribute(Machine& machine, const Value& value,
                   const std::string& name, bool* found) {
  *found = true;
  if (const auto* object = value.If<NamespaceObject*>()) {
    for (const auto& [own, held] : (*object)->items) {
      machine.budget().Step();
      if (own == name) return held;
    }
  } else if (const auto* loop = value.If<std::shared_ptr<LoopState>>()) {
    Value held = machine.LoopAttribute(*loop, name);
    if (!held.undefined() || name == "previtem" || name == "nextitem") {
      return held;
    }
  } else if (const auto* macro = value.If<MacroObject*>()) {
    if (name == "name") return machine.MakeString((*macro)->definition->name);
  } else if (HasMethod(value, name)) {
    if (value.text() == nullptr && In(kChanging, name)) {
      return MakeUndefined(StrCat("access to attribute ", Quoted(name), " of ",
                                  Quoted(TypeName(value)),
                                  " object is unsafe"));
    }
    return std::make_shared<const BoundMethod>(BoundMethod{value, name});
  }
  *found = false;
  return {};
}

// Python's value[key], or undefined with *found false.
Value OwnItem(Machine& machine, const Value& value, const Value& key,
              bool* found) {
  *found = true;
  if (const Dictionary* dictionary = value.dictionary()) {
    // A key that cannot be one is a TypeError, which Jinja turns into
    // undefined.
    const Row* row = key.row();
    if (key.dictionary() == nullptr &&
        (row == nullptr || row->type == RowType::kTuple) &&
        (key.text() != nullptr || key.number() || key.none() ||
         row != nullptr)) {
      if (const Value* held = Find(machine.budget(), *dictionary, key)) {
        return *held;
      }
    }
  } else if (key.integral()) {
    const int64_t* number = key.If<int64_t>();
    int64_t index = number != nullptr ? *number : *key.If<bool>();
    const Row* row = value.row();
    if (row != nullptr && row->type <= RowType::kRange) {
      const auto size = static_cast<int64_t>(row->items.size());
      if (index < 0) index += size;
      if (index >= 0 && index < size) {
        return row->items[static_cast<size_t>(index)];
      }
    } else if (const Text* text = value.text()) {
      const std::string& bytes = text->marked.text();
      const auto size = static_cast<int64_t>(
          text->ascii ? bytes.size() : CountCharacters(bytes));
      machine.budget().Work(text->ascii ? 0 : bytes.size());
      if (index < 0) index += size;
      if (index >= 0 && index < size) {
        const size_t at =
            ByteOffset(bytes, text->ascii, static_cast<size_t>(index));
        const size_t end =
            at + ReadCodePoint(std::string_view(bytes).substr(at)).bytes;
        return machine.MakeString(
            Part(machine.budget(), text->marked, at, end));
      }
    }
  }
  *found = false;
  return {};
}

void CheckDefined(const Value& value) {
  if (value.undefined()) Fail("a value with attributes", Describe(value));
}

// begin, end and step of a slice as Python's slice.indices gives them.
struct Indices {
  int64_t begin, end, step;
};

Indices IndicesOf(int64_t size, const Value& begin, const Value& end,
                  const Value& step) {
  const auto number = [](const Value& value, int64_t otherwise) {
    if (value.none()) return otherwise;
    if (!value.integral()) Fail("whole numbers in a slice", Describe(value));
    const int64_t* whole = value.If<int64_t>();
    return whole != nullptr ? *whole : int64_t{*value.If<bool>()};
  };
  const int64_t by = number(step, 1);
  if (by == 0) Fail("a step of a slice other than 0", "0");
  const int64_t least = by > 0 ? 0 : -1, most = by > 0 ? size : size - 1;
  const auto clamp = [&](int64_t at) {
    if (at < 0) at = at < -size ? -1 - size : at + size;
    return std::clamp(at, least, most);
  };
  Indices found{by > 0 ? least : most, by > 0 ? most : least, by};
  if (!begin.none()) found.begin = clamp(number(begin, 0));
  if (!end.none()) found.end = clamp(number(end, 0));
  return found;
}

}  // namespace

bool HasMethod(const Value& value, std::string_view name) {
  if (value.text() != nullptr) return In(kTextMethods, name);
  if (value.dictionary() != nullptr) return In(kDictionaryMethods, name);
  const Row* row = value.row();
  if (row == nullptr) return false;
  if (row->type == RowType::kList) return In(kListMethods, name);
  return row->type <= RowType::kRange && In(kTupleMethods, name);
}

Value Attribute(Machine& machine, const Value& value, const Value& name) {
  CheckDefined(value);
  const std::string& text = name.text()->marked.text();
  bool found = false;
  Value held = OwnAttribute(machine, value, text, &found);
  if (!found) held = OwnItem(machine, value, name, &found);
  return found ? held : NoAttribute(value, text);
}

Value Item(Machine& machine, const Value& value, const Value& key) {
  CheckDefined(value);
  bool found = false;
  Value held = OwnItem(machine, value, key, &found);
  if (found) return held;
  const Text* name = key.text();
  if (name == nullptr) {
    return MakeUndefined(StrCat(Quoted(StrCat(TypeName(value), " object")),
                                " has no such element"));
  }
  held = OwnAttribute(machine, value, name->marked.text(), &found);
  return found ? held : NoAttribute(value, name->marked.text());
}

Value Slice(Machine& machine, const Value& value, const Value& begin,
            const Value& end, const Value& step) {
  CheckDefined(value);
  Budget& budget = machine.budget();
  if (const Text* text = value.text()) {
    const std::string& bytes = text->marked.text();
    budget.Work(bytes.size());
    std::vector<size_t> starts;  // of the characters, then the end
    if (!text->ascii) {
      for (size_t at = 0; at < bytes.size();) {
        starts.push_back(at);
        at += ReadCodePoint(std::string_view(bytes).substr(at)).bytes;
      }
      starts.push_back(bytes.size());
    }
    const Account account(&budget, starts.size() * sizeof(size_t));
    const auto size =
        static_cast<int64_t>(text->ascii ? bytes.size() : starts.size() - 1);
    const auto offset = [&](int64_t at) {
      const auto index = static_cast<size_t>(at);
      return text->ascii ? index : starts[index];
    };
    const Indices at = IndicesOf(size, begin, end, step);
    TextBuilder out(&budget);
    if (at.step == 1) {
      if (at.begin < at.end) {
        out.Append(text->marked, offset(at.begin), offset(at.end));
      }
    } else {
      for (int64_t i = at.begin; at.step > 0 ? i < at.end : i > at.end;
           i += at.step) {
        out.Append(text->marked, offset(i), offset(i + 1));
      }
    }
    return machine.MakeString(out.Take());
  }
  const Row* row = value.row();
  if (row == nullptr || row->type > RowType::kRange) {
    Fail("text or a list to take a slice of", Describe(value));
  }
  const Indices at =
      IndicesOf(static_cast<int64_t>(row->items.size()), begin, end, step);
  std::vector<Value> items;
  for (int64_t i = at.begin; at.step > 0 ? i < at.end : i > at.end;
       i += at.step) {
    items.push_back(row->items[static_cast<size_t>(i)]);
  }
  return MakeRow(
      &budget, row->type == RowType::kTuple ? RowType::kTuple : RowType::kList,
      std::move(items));
}

std::vector<Value> Items(Machine& machine, const Value& value) {
  std::vector<Value> items;
  if (value.undefined()) return items;
  Budget& budget = machine.budget();
  if (const Row* row = value.row()) {
    if (row->type == RowType::kGenerator && std::exchange(row->spent, true)) {
      return items;
    }
    budget.Step(1 + row->items.size() / 8);
    return row->items;
  }
  if (const Dictionary* dictionary = value.dictionary()) {
    budget.Step(1 + dictionary->items.size() / 8);
    for (const auto& [key, item] : dictionary->items) items.push_back(key);
    return items;
  }
  if (const Text* text = value.text()) {
    const std::string_view bytes = text->marked.text();
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = ReadCodePoint(bytes.substr(at)).bytes;
      items.push_back(
          machine.MakeString(Part(budget, text->marked, at, at + size)));
      at += size;
    }
    return items;
  }
  Fail("a list, an object or text to go through", Describe(value));
}

int64_t Length(Machine& machine, const Value& value) {
  if (value.undefined()) return 0;
  if (const Text* text = value.text()) {
    const std::string& bytes = text->marked.text();
    if (text->ascii) return static_cast<int64_t>(bytes.size());
    machine.budget().Work(bytes.size());
    return static_cast<int64_t>(CountCharacters(bytes));
  }
  const Row* row = value.row();
  if (row != nullptr && row->type != RowType::kGenerator) {
    return static_cast<int64_t>(row->items.size());
  }
  if (const Dictionary* dictionary = value.dictionary()) {
    return static_cast<int64_t>(dictionary->items.size());
  }
  if (const auto* loop = value.If<std::shared_ptr<LoopState>>()) {
    return *machine.LoopAttribute(*loop, "length").If<int64_t>();
  }
  Fail("a value with a length", Describe(value));
}

Value CallMethod(Machine& machine, const BoundMethod& method,
                 const Arguments& arguments) {
  const Value& receiver = method.receiver;
  const std::string& name = method.name;
  Budget& budget = machine.budget();
  if (receiver.text() != nullptr) {
    return CallTextMethod(machine, receiver, name, arguments);
  }
  if (const Dictionary* dictionary = receiver.dictionary()) {
    if (name == "get") {
      const Bound bound(arguments, "get", {"", ""}, 1);
      const Value* found = Find(budget, *dictionary, bound[0]);
      return found != nullptr ? *found : bound.given(1) ? bound[1] : None{};
    }
    if (name == "fromkeys") Fail("a method that is supported", "'fromkeys'");
    const Bound bound(arguments, name, {});
    if (name == "copy") return receiver;
    std::vector<Value> items;
    for (const auto& [key, value] : dictionary->items) {
      budget.Step();
      items.push_back(name == "keys" ? key
                      : name == "values"
                          ? value
                          : MakeRow(&budget, RowType::kTuple, {key, value}));
    }
    return MakeRow(&budget,
                   name == "keys"     ? RowType::kKeys
                   : name == "values" ? RowType::kValues
                                      : RowType::kItems,
                   std::move(items));
  }
  const Row& row = *receiver.row();
  if (name == "copy") {
    const Bound bound(arguments, name, {});
    return receiver;
  }
  const Bound bound(arguments, name, {""}, 1);
  int64_t count = 0;
  for (size_t i = 0; i < row.items.size(); ++i) {
    if (!Equal(budget, row.items[i], bound[0])) continue;
    if (name == "index") return static_cast<int64_t>(i);
    ++count;
  }
  if (name == "index") Fail("a value that is in the list", "another");
  return count;
}

}  // namespace tarn::jinja
