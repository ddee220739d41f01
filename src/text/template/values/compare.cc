// Python's truth, equality and order.
#include <cmath>
#include <optional>

#include "text/template/values/fault.h"
#include "text/template/values/value.h"

namespace tarn::jinja {
namespace {

int64_t WholeOf(const Value& value) {
  const int64_t* number = value.If<int64_t>();
  return number != nullptr ? *number : *value.If<bool>();
}

// -1, 0, 1; 2 if one is not a number (NaN). Exact for an integer and a float.
int CompareNumbers(const Value& left, const Value& right) {
  const double *a = left.If<double>(), *b = right.If<double>();
  if (a != nullptr && b != nullptr) {
    if (std::isnan(*a) || std::isnan(*b)) return 2;
    return *a < *b ? -1 : *a > *b ? 1 : 0;
  }
  if (a == nullptr && b == nullptr) {
    const int64_t x = WholeOf(left), y = WholeOf(right);
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (b == nullptr) {
    const int swapped = CompareNumbers(right, left);
    return swapped == 2 ? 2 : -swapped;
  }
  const int64_t x = WholeOf(left);
  if (std::isnan(*b)) return 2;
  if (*b >= 0x1p63) return -1;
  if (*b < -0x1p63) return 1;
  const double whole = std::trunc(*b);
  const int64_t y = static_cast<int64_t>(whole);
  if (x != y) return x < y ? -1 : 1;
  return *b > whole ? -1 : *b < whole ? 1 : 0;
}

// Lists and tuples compare with their like; ranges by their items.
bool SameRows(const Row& a, const Row& b) {
  return a.type == b.type && a.type != RowType::kGenerator &&
         a.type != RowType::kValues;
}

bool EqualDictionaries(Budget& budget, const Dictionary& a,
                       const Dictionary& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = Find(budget, b, key);
    if (other == nullptr || !Equal(budget, value, *other)) return false;
  }
  return true;
}

// The same object, or an equal one: what containers look for.
bool Same(Budget& budget, const Value& a, const Value& b) {
  if (a.row() != nullptr && a.row() == b.row()) return true;
  return Equal(budget, a, b);
}

}  // namespace

bool Truth(const Value& value) {
  if (value.undefined() || value.none()) return false;
  if (value.integral()) return WholeOf(value) != 0;
  if (const double* number = value.If<double>()) return *number != 0;
  if (const Text* text = value.text()) return text->marked.size() != 0;
  if (const Row* row = value.row()) {
    return row->type == RowType::kGenerator || !row->items.empty();
  }
  if (const Dictionary* dictionary = value.dictionary()) {
    return !dictionary->items.empty();
  }
  return true;
}

bool Equal(Budget& budget, const Value& left, const Value& right) {
  budget.Step();
  if (left.number() && right.number()) return CompareNumbers(left, right) == 0;
  if (left.held().index() != right.held().index()) return false;
  if (const Text* a = left.text()) {
    const std::string& b = right.text()->marked.text();
    budget.Work(b.size());
    return a->marked.text() == b;
  }
  if (const Row* a = left.row()) {
    const Row* b = right.row();
    if (a == b) return true;
    if (!SameRows(*a, *b) || a->items.size() != b->items.size()) return false;
    for (size_t i = 0; i < a->items.size(); ++i) {
      if (!Same(budget, a->items[i], b->items[i])) return false;
    }
    return true;
  }
  if (const Dictionary* a = left.dictionary()) {
    return EqualDictionaries(budget, *a, *right.dictionary());
  }
  if (const MethodPointer* a = left.If<MethodPointer>()) {
    return *a == *right.If<MethodPointer>();
  }
  if (const Builtin* a = left.If<Builtin>()) return *a == *right.If<Builtin>();
  if (const auto* a = left.If<NamespaceObject*>()) {
    return *a == *right.If<NamespaceObject*>();
  }
  if (const auto* a = left.If<MacroObject*>()) {
    return *a == *right.If<MacroObject*>();
  }
  if (const auto* a = left.If<std::shared_ptr<LoopState>>()) {
    return *a == *right.If<std::shared_ptr<LoopState>>();
  }
  return true;  // None and None, undefined and undefined
}

bool Less(Budget& budget, const Value& left, const Value& right) {
  budget.Step();
  if (left.number() && right.number()) {
    return CompareNumbers(left, right) == -1;
  }
  const Text *a = left.text(), *b = right.text();
  if (a != nullptr && b != nullptr) {
    budget.Work(std::min(a->marked.size(), b->marked.size()));
    return a->marked.text() < b->marked.text();  // UTF-8 keeps the order
  }
  const Row *x = left.row(), *y = right.row();
  if (x != nullptr && y != nullptr && x->type == y->type &&
      (x->type == RowType::kList || x->type == RowType::kTuple)) {
    for (size_t i = 0; i < x->items.size() && i < y->items.size(); ++i) {
      if (!Same(budget, x->items[i], y->items[i])) {
        return Less(budget, x->items[i], y->items[i]);
      }
    }
    return x->items.size() < y->items.size();
  }
  Fail("two values that have an order",
       StrCat(Describe(left), " and ", Describe(right)));
}

bool Contains(Budget& budget, const Value& container, const Value& item) {
  if (container.undefined()) return false;
  if (const Text* whole = container.text()) {
    const Text* part = item.text();
    if (part == nullptr) Fail("text to look for in a text", Describe(item));
    budget.Work(whole->marked.size());
    return whole->marked.text().find(part->marked.text()) != std::string::npos;
  }
  if (const Dictionary* dictionary = container.dictionary()) {
    return Find(budget, *dictionary, item) != nullptr;
  }
  if (const Row* row = container.row()) {
    if (std::exchange(row->spent, row->type == RowType::kGenerator)) {
      return false;
    }
    for (const Value& own : row->items) {
      if (Same(budget, own, item)) return true;
    }
    return false;
  }
  Fail("text, a list or an object after 'in'", Describe(container));
}

}  // namespace tarn::jinja
