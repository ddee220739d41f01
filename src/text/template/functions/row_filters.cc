// Filters of lists, objects and whatever a loop can go through. Those that are
// generators in Jinja are evaluated at once and give their items once.
#include <algorithm>
#include <functional>
#include <unordered_set>

#include "core/text.h"
#include "text/template/interpreter.h"
#include "text/template/values/python_text.h"

namespace tarn::jinja {
namespace {

Value Generator(Machine& machine, std::vector<Value> items) {
  return MakeRow(&machine.budget(), RowType::kGenerator, std::move(items));
}

// "a.0.b": the items to take one after the other; a number takes itself.
std::vector<Value> Path(Machine& machine, const Value& attribute) {
  std::vector<Value> path;
  if (attribute.none() || attribute.undefined()) return path;
  const Text* text = attribute.text();
  if (text == nullptr) return {attribute};
  for (const std::string_view part : Split(text->marked.text(), '.')) {
    int64_t index = 0;
    const bool digits =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
          return c >= '0' && c <= '9';
        });
    if (digits && ReadInteger(part, 10, &index)) {
      path.push_back(index);
    } else {
      path.push_back(machine.MakeString(part));
    }
  }
  return path;
}

Value Follow(Machine& machine, Value value, const std::vector<Value>& path,
             const Value* otherwise = nullptr) {
  for (const Value& part : path) {
    value = Item(machine, value, part);
    if (otherwise != nullptr && value.undefined()) value = *otherwise;
  }
  return value;
}

Value IgnoreCase(Machine& machine, const Value& value) {
  const Text* text = value.text();
  if (text == nullptr) return value;
  return machine.MakeString(
      ChangeCase(machine.budget(), text->marked, Case::kLower));
}

// The key by which sort, unique, min and max compare.
Value KeyFor(Machine& machine, const Value& item,
             const std::vector<Value>& path, bool case_sensitive) {
  Value key = Follow(machine, item, path);
  return case_sensitive ? key : IgnoreCase(machine, key);
}

Value First(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "first", {});
  const std::vector<Value> items = Items(machine, value);
  if (items.empty()) return MakeUndefined("no first item of an empty list");
  return items[0];
}

Value Last(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "last", {});
  const Row* row = value.row();
  if (row != nullptr && row->type == RowType::kGenerator) {
    Fail("a list (the filter 'list' makes one)", Describe(value));
  }
  const std::vector<Value> items = Items(machine, value);
  if (items.empty()) return MakeUndefined("no last item of an empty list");
  return items.back();
}

Value LengthFilter(Machine& machine, const Value& value,
                   const Arguments& arguments) {
  const Bound bound(arguments, "length", {});
  return Length(machine, value);
}

Value List(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "list", {});
  return MakeList(&machine.budget(), Items(machine, value));
}

Value ItemsFilter(Machine& machine, const Value& value,
                  const Arguments& arguments) {
  const Bound bound(arguments, "items", {});
  std::vector<Value> pairs;
  if (!value.undefined()) {
    const Dictionary* dictionary = value.dictionary();
    if (dictionary == nullptr) {
      Fail("an object for the filter items", Describe(value));
    }
    for (const auto& [key, item] : dictionary->items) {
      pairs.push_back(MakeRow(&machine.budget(), RowType::kTuple, {key, item}));
    }
  }
  return Generator(machine, std::move(pairs));
}

Value Join(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "join", {"d", "attribute"});
  Budget& budget = machine.budget();
  const MarkedText separator =
      bound.given(0) ? Str(budget, bound[0]) : MarkedText();
  const std::vector<Value> path = Path(machine, bound[1]);
  TextBuilder out(&budget);
  bool first = true;
  for (const Value& item : Items(machine, value)) {
    if (!first) out.Append(separator);
    first = false;
    AppendStr(out, Follow(machine, item, path));
  }
  return machine.MakeString(out.Take());
}

using Row2 = std::pair<std::vector<Value>, Value>;  // keys, item

// Python's sorted by lists of keys.
void SortRows(Machine& machine, std::vector<Row2>& rows, bool reverse,
              bool equal_first) {
  Budget& budget = machine.budget();
  const auto less = [&](const Row2& a, const Row2& b) {
    for (size_t i = 0; i < a.first.size(); ++i) {
      // Lists look for the first difference; single keys are compared at once.
      if (!equal_first || !Equal(budget, a.first[i], b.first[i])) {
        return Less(budget, a.first[i], b.first[i]);
      }
    }
    return false;
  };
  if (reverse) std::reverse(rows.begin(), rows.end());
  std::stable_sort(rows.begin(), rows.end(), less);
  if (reverse) std::reverse(rows.begin(), rows.end());
}

Value ItemsOf(Machine& machine, std::vector<Row2>& rows) {
  std::vector<Value> items;
  for (Row2& row : rows) items.push_back(std::move(row.second));
  return MakeList(&machine.budget(), std::move(items));
}

Value Sort(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "sort",
                    {"reverse", "case_sensitive", "attribute"});
  std::vector<std::vector<Value>> paths;
  if (const Text* text = bound[2].text()) {
    for (const std::string_view part : Split(text->marked.text(), ',')) {
      paths.push_back(Path(machine, machine.MakeString(part)));
    }
  } else {
    paths.push_back(Path(machine, bound[2]));
  }
  std::vector<Row2> rows;
  for (Value& item : Items(machine, value)) {
    Row2 row;
    for (const auto& path : paths) {
      row.first.push_back(KeyFor(machine, item, path, bound.TruthOr(1, false)));
    }
    row.second = std::move(item);
    rows.push_back(std::move(row));
  }
  SortRows(machine, rows, bound.TruthOr(0, false), true);
  return ItemsOf(machine, rows);
}

Value DictSort(Machine& machine, const Value& value,
               const Arguments& arguments) {
  const Bound bound(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = bound.given(1) ? bound.TextAt(1).marked.text() : "key";
  if (by != "key" && by != "value") Fail("key or value", Quoted(by));
  const Dictionary* dictionary = value.dictionary();
  if (dictionary == nullptr) {
    Fail("an object for the filter dictsort", Describe(value));
  }
  std::vector<Row2> rows;
  for (const auto& [key, item] : dictionary->items) {
    const Value& own = by == "key" ? key : item;
    rows.push_back({{bound.TruthOr(0, false) ? own : IgnoreCase(machine, own)},
                    MakeRow(&machine.budget(), RowType::kTuple, {key, item})});
  }
  SortRows(machine, rows, bound.TruthOr(2, false), false);
  return ItemsOf(machine, rows);
}

Value Unique(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "unique", {"case_sensitive", "attribute"});
  const std::vector<Value> path = Path(machine, bound[1]);
  std::unordered_set<std::string> seen;
  std::vector<Value> items;
  Account account(&machine.budget(), 0);
  uint64_t bytes = 0;
  for (Value& item : Items(machine, value)) {
    const Value key = KeyFor(machine, item, path, bound.TruthOr(0, false));
    std::string text = KeyOf(key);
    machine.budget().Work(text.size());
    account.Grow(bytes += text.size() + 64);
    if (seen.insert(std::move(text)).second) items.push_back(std::move(item));
  }
  return Generator(machine, std::move(items));
}

template <bool largest>
Value Extreme(Machine& machine, const Value& value,
              const Arguments& arguments) {
  const Bound bound(arguments, largest ? "max" : "min",
                    {"case_sensitive", "attribute"});
  const std::vector<Value> path = Path(machine, bound[1]);
  const bool sensitive = bound.TruthOr(0, false);
  const std::vector<Value> items = Items(machine, value);
  if (items.empty()) return MakeUndefined("no item of an empty list");
  Value best = items[0], key = KeyFor(machine, best, path, sensitive);
  for (size_t i = 1; i < items.size(); ++i) {
    Value own = KeyFor(machine, items[i], path, sensitive);
    if (largest ? Less(machine.budget(), key, own)
                : Less(machine.budget(), own, key)) {
      best = items[i];
      key = std::move(own);
    }
  }
  return best;
}

Value Sum(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "sum", {"attribute", "start"});
  const std::vector<Value> path = Path(machine, bound[0]);
  Value sum = bound.given(1) ? bound[1] : Value(int64_t{0});
  if (sum.text() != nullptr) Fail("a start other than text", "text");
  for (const Value& item : Items(machine, value)) {
    machine.budget().Step();
    sum =
        Arithmetic(machine, Operation::kAdd, sum, Follow(machine, item, path));
  }
  return sum;
}

Value Reverse(Machine& machine, const Value& value,
              const Arguments& arguments) {
  const Bound bound(arguments, "reverse", {});
  if (value.text() != nullptr) {
    return Slice(machine, value, None{}, None{}, int64_t{-1});
  }
  std::vector<Value> items = Items(machine, value);
  std::reverse(items.begin(), items.end());
  const Row* row = value.row();
  if (row != nullptr && row->type == RowType::kGenerator) {
    return MakeList(&machine.budget(), std::move(items));
  }
  return Generator(machine, std::move(items));
}

Value Batch(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "batch", {"linecount", "fill_with"}, 1);
  const int64_t size = bound.IntegerAt(0);
  std::vector<Value> rows, row;
  for (Value& item : Items(machine, value)) {
    if (static_cast<int64_t>(row.size()) == size) {
      rows.push_back(MakeList(&machine.budget(), std::exchange(row, {})));
    }
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    while (bound.some(1) && static_cast<int64_t>(row.size()) < size) {
      machine.budget().Step();
      row.push_back(bound[1]);
    }
    rows.push_back(MakeList(&machine.budget(), std::move(row)));
  }
  return Generator(machine, std::move(rows));
}

Value SliceFilter(Machine& machine, const Value& value,
                  const Arguments& arguments) {
  const Bound bound(arguments, "slice", {"slices", "fill_with"}, 1);
  const std::vector<Value> items = Items(machine, value);
  const int64_t slices = bound.IntegerAt(0);
  if (slices == 0) Fail("a number of slices other than 0", "0");
  std::vector<Value> rows;
  const auto count = static_cast<int64_t>(items.size());
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t size = count / slices + (i < count % slices ? 1 : 0);
    std::vector<Value> row(items.begin() + at, items.begin() + at + size);
    if (bound.some(1) && i >= count % slices) row.push_back(bound[1]);
    rows.push_back(MakeList(&machine.budget(), std::move(row)));
    at += size;
  }
  return Generator(machine, std::move(rows));
}

Value Map(Machine& machine, const Value& value, const Arguments& arguments) {
  std::vector<Value> items;
  if (!Truth(value)) return Generator(machine, std::move(items));
  if (arguments.positional.empty()) {
    const Bound bound(arguments, "map", {"attribute", "default"}, 1);
    const std::vector<Value> path = Path(machine, bound[0]);
    for (const Value& item : Items(machine, value)) {
      items.push_back(
          Follow(machine, item, path, bound.some(1) ? &bound[1] : nullptr));
    }
    return Generator(machine, std::move(items));
  }
  const Text* name = arguments.positional[0].text();
  const Filter* filter =
      name != nullptr ? FindFilter(name->marked.text()) : nullptr;
  if (filter == nullptr) {
    Fail("the name of a filter", name != nullptr
                                     ? Quoted(name->marked.text())
                                     : Describe(arguments.positional[0]));
  }
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : Items(machine, value)) {
    const Deeper deeper(machine.budget());
    machine.budget().Step();
    items.push_back(filter->run(machine, item, rest));
  }
  return Generator(machine, std::move(items));
}

// select, reject (wanted), selectattr, rejectattr (attribute).
template <bool wanted, bool attribute>
Value Choose(Machine& machine, const Value& value, const Arguments& arguments) {
  std::vector<Value> items;
  if (!Truth(value)) return Generator(machine, std::move(items));
  Arguments rest = arguments;
  std::vector<Value> path;
  if (attribute) {
    if (rest.positional.empty()) Fail("the name of an attribute", "none");
    path = Path(machine, rest.positional[0]);
    rest.positional.erase(rest.positional.begin());
  }
  const Test* test = nullptr;
  if (!rest.positional.empty()) {
    const Text* name = rest.positional[0].text();
    if (name != nullptr) test = FindTest(name->marked.text());
    if (test == nullptr) {
      Fail("the name of a test", name != nullptr
                                     ? Quoted(name->marked.text())
                                     : Describe(rest.positional[0]));
    }
    rest.positional.erase(rest.positional.begin());
  }
  for (Value& item : Items(machine, value)) {
    machine.budget().Step();
    const Value own = Follow(machine, item, path);
    const bool holds =
        test != nullptr ? test->run(machine, own, rest) : Truth(own);
    if (holds == wanted) items.push_back(std::move(item));
  }
  return Generator(machine, std::move(items));
}

constexpr Filter kRowFilters[] = {
    {"batch", Batch},
    {"count", LengthFilter},
    {"dictsort", DictSort},
    {"first", First},
    {"items", ItemsFilter},
    {"join", Join},
    {"last", Last},
    {"length", LengthFilter},
    {"list", List},
    {"map", Map},
    {"max", Extreme<true>},
    {"min", Extreme<false>},
    {"reject", Choose<false, false>},
    {"rejectattr", Choose<false, true>},
    {"reverse", Reverse},
    {"select", Choose<true, false>},
    {"selectattr", Choose<true, true>},
    {"slice", SliceFilter},
    {"sort", Sort},
    {"sum", Sum},
    {"unique", Unique},
};

}  // namespace

const Filter* FindRowFilter(std::string_view name) {
  for (const Filter& filter : kRowFilters) {
    if (filter.name == name) return &filter;
  }
  return nullptr;
}

}  // namespace tarn::jinja
