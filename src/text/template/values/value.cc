#include "text/template/values/value.h"

#include <algorithm>
#include <cmath>

#include "core/overloaded.h"
#include "text/template/values/fault.h"
#include "text/template/values/python_text.h"

namespace tarn::jinja {
namespace {

// From this many items on a dictionary has an index.
constexpr size_t kIndexedItems = 8;
// Memory of a value in addition to its text or items, in bytes.
constexpr uint64_t kOverhead = 64;

uint32_t DepthOf(const Value& value) {
  if (const Row* row = value.row()) return row->depth;
  if (const Dictionary* dictionary = value.dictionary()) {
    return dictionary->depth;
  }
  if (const MethodPointer* method = value.If<MethodPointer>()) {
    return DepthOf((*method)->receiver) + 1;
  }
  return 0;
}

void CheckDepth(Budget* budget, uint32_t depth) {
  const uint32_t most =
      budget != nullptr ? budget->limits().max_value_depth : kMaxTemplateDepth;
  if (depth > most) {
    Fail(StrCat("at most ", most, " levels of lists and objects"), "more");
  }
}

}  // namespace

std::string_view TypeName(const Value& value) {
  return std::visit(
      Overloaded{
          [](const Undefined&) -> std::string_view { return "Undefined"; },
          [](None) -> std::string_view { return "NoneType"; },
          [](bool) -> std::string_view { return "bool"; },
          [](int64_t) -> std::string_view { return "int"; },
          [](double) -> std::string_view { return "float"; },
          [](const TextPointer&) -> std::string_view { return "str"; },
          [](const RowPointer& row) -> std::string_view {
            constexpr std::string_view kNames[] = {
                "list",        "tuple",      "range",    "dict_keys",
                "dict_values", "dict_items", "generator"};
            return kNames[static_cast<size_t>(row->type)];
          },
          [](const DictionaryPointer&) -> std::string_view { return "dict"; },
          [](NamespaceObject*) -> std::string_view { return "Namespace"; },
          [](MacroObject*) -> std::string_view { return "Macro"; },
          [](const std::shared_ptr<LoopState>&) -> std::string_view {
            return "LoopContext";
          },
          [](Builtin) -> std::string_view { return "function"; },
          [](const MethodPointer&) -> std::string_view { return "method"; }},
      value.held());
}

std::string Describe(const Value& value) {
  if (const Undefined* undefined = value.If<Undefined>()) {
    return undefined->reason != nullptr ? *undefined->reason
                                        : "an undefined value";
  }
  return StrCat("a value of type ", TypeName(value));
}

Value MakeText(Budget* budget, MarkedText text, bool markup) {
  auto made = std::make_shared<Text>();
  made->account = Account(budget, text.Bytes() + kOverhead);
  made->ascii = IsAscii(text.text());
  made->markup = markup;
  made->marked = std::move(text);
  return TextPointer(std::move(made));
}

Value MakeRow(Budget* budget, RowType type, std::vector<Value> items) {
  auto made = std::make_shared<Row>();
  made->type = type;
  made->account = Account(budget, items.size() * sizeof(Value) + kOverhead);
  for (const Value& item : items) {
    made->depth = std::max(made->depth, DepthOf(item) + 1);
  }
  CheckDepth(budget, made->depth);
  if (budget != nullptr) budget->Work(items.size() * sizeof(Value));
  made->items = std::move(items);
  return RowPointer(std::move(made));
}

Value MakeUndefined(std::string reason) {
  return Undefined{std::make_shared<const std::string>(std::move(reason))};
}

std::string KeyOf(const Value& key) {
  if (key.none()) return "N";
  if (key.undefined()) return "U";
  if (const Text* text = key.text()) return "s" + text->marked.text();
  if (key.integral()) {
    const int64_t* number = key.If<int64_t>();
    return "n" + std::to_string(number ? *number : *key.If<bool>());
  }
  if (const double* number = key.If<double>()) {
    if (std::trunc(*number) == *number && std::fabs(*number) < 9e18) {
      return "n" + std::to_string(static_cast<int64_t>(*number));
    }
    return "n" + FloatText(*number);
  }
  const Row* row = key.row();
  if (row != nullptr && row->type == RowType::kTuple) {
    std::string text = "(";
    for (const Value& item : row->items) {
      const std::string part = KeyOf(item);
      text += std::to_string(part.size()) + ":" + part;
    }
    return text;
  }
  Fail("a key of an object (text, number or none)", Describe(key));
}

DictionaryBuilder::DictionaryBuilder(Budget* budget)
    : budget_(budget), made_(std::make_shared<Dictionary>()) {
  made_->account = Account(budget, kOverhead);
}

void DictionaryBuilder::Set(Value key, Value value) {
  Dictionary& made = *made_;
  std::string text = KeyOf(key);
  if (budget_ != nullptr) budget_->Work(text.size() + kOverhead);
  bytes_ += 2 * sizeof(Value) + text.size() + kOverhead;
  made.account.Grow(bytes_ + kOverhead);
  made.depth = std::max(made.depth, DepthOf(value) + 1);
  CheckDepth(budget_, made.depth);
  if (made.items.size() == kIndexedItems && made.index.empty()) {
    for (size_t i = 0; i < made.items.size(); ++i) {
      made.index.emplace(KeyOf(made.items[i].first), i);
    }
  }
  if (made.index.empty()) {
    for (auto& [old, held] : made.items) {
      if (KeyOf(old) == text) {
        held = std::move(value);
        return;
      }
    }
  } else {
    const auto [entry, added] =
        made.index.emplace(std::move(text), made.items.size());
    if (!added) {
      made.items[entry->second].second = std::move(value);
      return;
    }
  }
  made.items.emplace_back(std::move(key), std::move(value));
}

Value DictionaryBuilder::Take() {
  return DictionaryPointer(std::exchange(made_, nullptr));
}

const Value* Find(Budget& budget, const Dictionary& dictionary,
                  const Value& key) {
  const std::string text = KeyOf(key);
  budget.Work(text.size());
  if (!dictionary.index.empty()) {
    const auto found = dictionary.index.find(text);
    return found == dictionary.index.end()
               ? nullptr
               : &dictionary.items[found->second].second;
  }
  for (const auto& [own, value] : dictionary.items) {
    if (KeyOf(own) == text) return &value;
  }
  return nullptr;
}

const Value* Find(const Dictionary& dictionary, std::string_view key) {
  if (!dictionary.index.empty()) {
    const auto found = dictionary.index.find("s" + std::string(key));
    return found == dictionary.index.end()
               ? nullptr
               : &dictionary.items[found->second].second;
  }
  for (const auto& [own, value] : dictionary.items) {
    const Text* text = own.text();
    if (text != nullptr && text->marked.text() == key) return &value;
  }
  return nullptr;
}

}  // namespace tarn::jinja
