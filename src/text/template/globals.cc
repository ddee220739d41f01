// What a template can call: macros, built-in functions, methods of `loop`.
#include <algorithm>

#include "core/text.h"
#include "text/template/interpreter.h"

namespace tarn::jinja {
namespace {

// Jinja's sandbox allows no longer range.
constexpr int64_t kMaxRange = 100'000;

Value Range(Machine& machine, const Arguments& arguments) {
  const Bound bound(arguments, "range", {"", "", ""}, 1);
  const bool one = !bound.given(1);
  const int64_t start = one ? 0 : bound.IntegerAt(0);
  const int64_t stop = bound.IntegerAt(one ? 0 : 1);
  const int64_t step = bound.IntegerOr(2, 1);
  if (step == 0) Fail("a step of a range other than 0", "0");
  const auto row = std::make_shared<Row>();
  row->type = RowType::kRange;
  row->range[0] = start;
  row->range[1] = stop;
  row->range[2] = step;
  for (__int128 at = start; step > 0 ? at < stop : at > stop; at += step) {
    if (row->items.size() == static_cast<size_t>(kMaxRange)) {
      Fail(StrCat("a range of at most ", kMaxRange, " numbers"), "more");
    }
    row->items.emplace_back(static_cast<int64_t>(at));
  }
  row->account =
      Account(&machine.budget(), row->items.size() * sizeof(Value) + 64);
  machine.budget().Step(1 + row->items.size() / 8);
  return RowPointer(row);
}

// dict(mapping or pairs, name=value, ...) as pairs.
void Pairs(Machine& machine, const Arguments& arguments,
           std::string_view function, DictionaryBuilder& made) {
  if (arguments.positional.size() > 1) {
    Fail(StrCat("at most 1 argument of ", function, " without a name"),
         StrCat(arguments.positional.size()));
  }
  for (const Value& value : arguments.positional) {
    if (const Dictionary* dictionary = value.dictionary()) {
      for (const auto& [key, item] : dictionary->items) made.Set(key, item);
      continue;
    }
    for (const Value& pair : Items(machine, value)) {
      std::vector<Value> parts = Items(machine, pair);
      if (parts.size() != 2) {
        Fail("pairs of a key and a value", StrCat(parts.size(), " values"));
      }
      made.Set(std::move(parts[0]), std::move(parts[1]));
    }
  }
  for (const auto& [name, value] : arguments.named) {
    made.Set(machine.MakeString(name), value);
  }
}

Value MakeNamespace(Machine& machine, const Arguments& arguments) {
  DictionaryBuilder pairs(&machine.budget());
  Pairs(machine, arguments, "namespace", pairs);
  NamespaceObject* made = machine.NewNamespace();
  const Value held = pairs.Take();
  for (const auto& [key, value] : held.dictionary()->items) {
    const Text* name = key.text();
    if (name == nullptr || name->marked.text().starts_with('_')) {
      Fail("names of a namespace that do not begin with '_'",
           name == nullptr ? Describe(key) : Quoted(name->marked.text()));
    }
    made->items.emplace_back(name->marked.text(), value);
  }
  return made;
}

}  // namespace

Value GlobalOf(const std::string& name) {
  if (name == "range") return Builtin::kRange;
  if (name == "dict") return Builtin::kDict;
  if (name == "namespace") return Builtin::kNamespace;
  if (name == "raise_exception") return Builtin::kRaiseException;
  if (name == "strftime_now") return Builtin::kStrftimeNow;
  return {};
}

Value Machine::Call(const Value& function, const Arguments& arguments) {
  if (const auto* macro = function.If<MacroObject*>()) {
    return CallMacro(**macro, arguments);
  }
  if (const Builtin* builtin = function.If<Builtin>()) {
    return CallBuiltin(*builtin, arguments);
  }
  if (const MethodPointer* method = function.If<MethodPointer>()) {
    if (const auto* loop =
            (*method)->receiver.If<std::shared_ptr<LoopState>>()) {
      return LoopMethod(**loop, (*method)->name, arguments);
    }
    return CallMethod(*this, **method, arguments);
  }
  Fail("a function or macro to call", Describe(function));
}

Value Machine::CallBuiltin(Builtin builtin, const Arguments& arguments) {
  switch (builtin) {
    case Builtin::kRange:
      return Range(*this, arguments);
    case Builtin::kDict: {
      DictionaryBuilder made(&budget_);
      Pairs(*this, arguments, "dict", made);
      return made.Take();
    }
    case Builtin::kNamespace:
      return MakeNamespace(*this, arguments);
    case Builtin::kRaiseException: {
      const Bound bound(arguments, "raise_exception", {"message"}, 1);
      const MarkedText message = Str(budget_, bound[0]);
      throw Fault{ErrorCode::kArgument, "",
                  "the template refuses the conversation: " +
                      Printable(message.text(), 512),
                  at_};
    }
    case Builtin::kStrftimeNow: {
      const Bound bound(arguments, "strftime_now", {"format"}, 1);
      if (!options_.now) {
        Fail("the time from the caller (RenderOptions::now) for strftime_now",
             "none");
      }
      return MakeString(
          FormatTime(*options_.now, bound.TextAt(0).marked.text()));
    }
  }
  return {};
}

Value Machine::LoopAttribute(const std::shared_ptr<LoopState>& loop,
                             const std::string& name) {
  const int64_t index0 = loop->index0;
  const auto length = [&] {
    while (Advance(*loop)) {
    }
    return index0 + 1 + static_cast<int64_t>(loop->pending.size());
  };
  const auto more = [&] { return !loop->pending.empty() || Advance(*loop); };
  if (name == "index0") return index0;
  if (name == "index") return index0 + 1;
  if (name == "first") return index0 == 0;
  if (name == "last") return !more();
  if (name == "length") return length();
  if (name == "revindex") return length() - index0;
  if (name == "revindex0") return length() - index0 - 1;
  if (name == "depth0") return int64_t{0};
  if (name == "depth") return int64_t{1};
  if (name == "previtem") {
    return index0 == 0 ? MakeUndefined("there is no previous item")
                       : loop->before;
  }
  if (name == "nextitem") {
    return more() ? loop->pending.front()
                  : MakeUndefined("there is no next item");
  }
  if (name == "cycle" || name == "changed") {
    return std::make_shared<const BoundMethod>(BoundMethod{loop, name});
  }
  return MakeUndefined(StrCat("'loop' has no attribute ", Quoted(name)));
}

Value Machine::LoopMethod(LoopState& loop, const std::string& name,
                          const Arguments& arguments) {
  const std::vector<Value>& values = arguments.positional;
  if (name == "cycle") {
    if (values.empty()) Fail("values to cycle through", "none");
    return values[static_cast<size_t>(loop.index0) % values.size()];
  }
  const bool same =
      loop.ever_changed && loop.changed.size() == values.size() &&
      std::equal(
          values.begin(), values.end(), loop.changed.begin(),
          [&](const Value& a, const Value& b) { return Equal(budget_, a, b); });
  if (same) return false;
  loop.ever_changed = true;
  if (!loop.over) loop.changed = values;
  return true;
}

}  // namespace tarn::jinja
