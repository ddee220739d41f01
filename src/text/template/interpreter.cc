#include "text/template/interpreter.h"

#include <algorithm>

#include "core/text.h"
#include "text/template/values/restore.h"

namespace tarn::jinja {

// A scope within the current one. Macros that were defined in it may outlive
// it, and it stays for them.
class Machine::Inner {
 public:
  Inner(Machine& machine, Scope* parent)
      : machine_(machine),
        old_(machine.scope_),
        scope_(std::make_unique<Scope>(parent)) {
    machine_.scope_ = scope_.get();
  }
  ~Inner() {
    machine_.scope_ = old_;
    if (scope_->kept) machine_.kept_.push_back(std::move(scope_));
  }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;
  Scope* get() { return scope_.get(); }

 private:
  Machine& machine_;
  Scope* const old_;
  std::unique_ptr<Scope> scope_;
};

void Scope::Set(Symbol symbol, Value value) {
  for (auto& [own, held] : variables_) {
    if (own == symbol) {
      held = std::move(value);
      return;
    }
  }
  variables_.emplace_back(symbol, std::move(value));
}

Machine::Machine(const Program& program, const RenderOptions& options)
    : program_(program),
      options_(options),
      budget_(options.limits),
      variables_(program.names.size()) {}

void Machine::SetVariable(std::string_view name, Value value) {
  const auto found =
      std::find(program_.names.begin(), program_.names.end(), name);
  if (found == program_.names.end()) return;
  variables_[static_cast<size_t>(found - program_.names.begin())] =
      std::move(value);
}

MarkedText Machine::Run() {
  TextBuilder out(&budget_, options_.limits.max_output_bytes);
  out_ = &out;
  try {
    Execute(program_.body);
  } catch (Fault& fault) {
    if (fault.at.line == 0) fault.at = at_;
    throw;
  }
  return out.Take();
}

NamespaceObject* Machine::NewNamespace() {
  namespaces_.push_back(std::make_unique<NamespaceObject>());
  namespaces_.back()->account = Account(&budget_, sizeof(NamespaceObject));
  return namespaces_.back().get();
}

Machine::Flow Machine::Execute(const Block& block) {
  const Deeper deeper(budget_);
  for (const Statement& statement : block) {
    const Flow flow = Execute(statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Machine::Flow Machine::Execute(const Statement& statement) {
  budget_.Step();
  at_ = statement.at;
  Flow flow = Flow::kNext;
  switch (statement.type) {
    case StatementType::kText:
      out_->Append(statement.text);
      break;
    case StatementType::kOutput:
      AppendStr(*out_, Evaluate(*statement.expressions[0]));
      break;
    case StatementType::kIf:
      return If(statement);
    case StatementType::kFor:
      return For(statement);
    case StatementType::kBreak:
      return Flow::kBreak;
    case StatementType::kContinue:
      return Flow::kContinue;
    case StatementType::kSet:
    case StatementType::kSetBlock:
      Set(statement);
      break;
    case StatementType::kWith: {
      std::vector<Value> values;
      for (const ExpressionPointer& value : statement.expressions) {
        values.push_back(Evaluate(*value));
      }
      Inner inner(*this, scope_);
      for (size_t i = 0; i < values.size(); ++i) {
        Assign(statement.targets[i], values[i]);
      }
      return Execute(statement.blocks[0]);
    }
    case StatementType::kMacro:
      Assign(statement.targets[0], DefineMacro(*statement.macro));
      break;
    case StatementType::kCallBlock:
      CallBlock(statement);
      break;
    case StatementType::kFilterBlock: {
      const MarkedText body = Capture(statement.blocks[0], &flow);
      AppendStr(*out_,
                Filtered(statement.expressions[0].get(), MakeString(body)));
      break;
    }
    case StatementType::kScope:
      out_->Append(Capture(statement.blocks[0], &flow));
      break;
  }
  return flow;
}

Machine::Flow Machine::If(const Statement& statement) {
  for (size_t i = 0; i < statement.expressions.size(); ++i) {
    if (Truth(Evaluate(*statement.expressions[i]))) {
      return Execute(statement.blocks[i]);
    }
  }
  if (statement.blocks.size() > statement.expressions.size()) {
    return Execute(statement.blocks.back());
  }
  return Flow::kNext;
}

Machine::Flow Machine::Scoped(const Block& block) {
  const Inner inner(*this, scope_);
  return Execute(block);
}

// The output of a block. A break or continue in it ends the block, and what it
// has written until then is lost, as in Jinja.
MarkedText Machine::Capture(const Block& block, Flow* flow) {
  TextBuilder body(&budget_);
  const Restore out(out_, &body);
  *flow = Scoped(block);
  return *flow == Flow::kNext ? body.Take() : MarkedText();
}

Value Machine::Filtered(const Expression* filters, Value value) {
  if (filters == nullptr) return value;
  const Expression* inner = filters->operands[0].get();
  value = Filtered(inner, std::move(value));
  Arguments arguments = EvaluateArguments(filters->arguments);
  at_ = filters->at;
  if (filters->filter == nullptr) {
    Fail("a filter that is supported", Quoted(filters->text));
  }
  return filters->filter->run(*this, value, arguments);
}

void Machine::Set(const Statement& statement) {
  if (statement.type == StatementType::kSet) {
    const Value value = Evaluate(*statement.expressions[0]);
    at_ = statement.at;
    return Assign(statement.targets[0], value);
  }
  Flow flow = Flow::kNext;
  const Value body = MakeString(Capture(statement.blocks[0], &flow));
  Assign(statement.targets[0], Filtered(statement.expressions[0].get(), body));
}

void Machine::Assign(const Target& target, const Value& value) {
  if (target.type == Target::kTuple) {
    const std::vector<Value> items = Items(*this, value);
    if (items.size() != target.parts.size()) {
      Fail(StrCat(target.parts.size(), " values to assign"),
           StrCat(items.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(target.parts[i], items[i]);
    return;
  }
  if (target.type == Target::kAttribute) {
    const Value held = Name(target.symbol);
    const auto* object = held.If<NamespaceObject*>();
    if (object == nullptr)
      Fail("a namespace to set a value in", Describe(held));
    if (target.attribute.starts_with('_')) {
      Fail("a name that does not begin with '_'", Quoted(target.attribute));
    }
    for (auto& [name, own] : (*object)->items) {
      budget_.Step();
      if (name == target.attribute) {
        own = value;
        return;
      }
    }
    (*object)->items.emplace_back(target.attribute, value);
    return;
  }
  if (scope_ == &root_) {
    variables_[target.symbol] = value;
    return;
  }
  budget_.Step(1 + scope_->size() / 8);
  scope_->Set(target.symbol, value);
}

// Whether an item passes the filter of the loop, evaluated in a scope with the
// loop's variables alone.
bool Machine::Accept(const Value& item) {
  const LoopFilter filter = filters_.back().second;
  if (filter.condition == nullptr) return true;
  Inner inner(*this, filter.scope);
  Assign(*filter.target, item);
  return Truth(Evaluate(*filter.condition));
}

// Looks for one more item that passes the filter.
bool Machine::Advance(LoopState& loop) {
  if (loop.over) return false;
  // An attribute of an outer loop may ask from within an inner one.
  const auto found =
      std::find_if(filters_.rbegin(), filters_.rend(),
                   [&](const auto& row) { return row.first == &loop; });
  if (found == filters_.rend()) return false;
  const auto row = *found;
  filters_.push_back(row);
  bool any = false;
  while (!any && loop.next < loop.items.size()) {
    budget_.Step();
    const Value& item = loop.items[loop.next++];
    if (Accept(item)) {
      loop.pending.push_back(item);
      any = true;
    }
  }
  filters_.pop_back();
  return any;
}

Machine::Flow Machine::For(const Statement& statement) {
  const Value iterable = Evaluate(*statement.expressions[0]);
  at_ = statement.at;
  auto loop = std::make_shared<LoopState>();
  loop->items = Items(*this, iterable);
  const Account account(&budget_, loop->items.size() * sizeof(Value));
  Scope* const outer = scope_;
  filters_.emplace_back(
      loop.get(),
      LoopFilter{&statement.targets[0], statement.expressions[1].get(), outer});
  bool any = false;
  Flow flow = Flow::kNext;
  while (flow != Flow::kBreak && (!loop->pending.empty() || Advance(*loop))) {
    any = true;
    loop->before = std::move(loop->now);
    loop->now = std::move(loop->pending.front());
    loop->pending.pop_front();
    ++loop->index0;
    Inner inner(*this, outer);
    inner.get()->Set(program_.loop, loop);
    Assign(statement.targets[0], loop->now);
    flow = Execute(statement.blocks[0]);
  }
  loop->over = true;
  loop->changed.clear();  // it may hold the loop itself
  loop->before = Value();
  loop->now = Value();
  filters_.pop_back();
  if (!any && statement.blocks.size() > 1) return Scoped(statement.blocks[1]);
  return Flow::kNext;
}

Value Machine::DefineMacro(const MacroDefinition& definition) {
  for (Scope* scope = scope_; scope != nullptr && !scope->kept;
       scope = scope->parent()) {
    scope->kept = true;
  }
  macros_.push_back(std::make_unique<MacroObject>());
  MacroObject& macro = *macros_.back();
  macro.definition = &definition;
  macro.scope = scope_;
  macro.account = Account(&budget_, sizeof(MacroObject) + 256);
  return &macro;
}

void Machine::CallBlock(const Statement& statement) {
  const Expression& call = *statement.expressions[0];
  const Value function = Evaluate(*call.operands[0]);
  Arguments arguments = EvaluateArguments(call.arguments);
  arguments.named.emplace_back("caller", DefineMacro(*statement.macro));
  at_ = call.at;
  AppendStr(*out_, Call(function, arguments));
}

Value Machine::CallMacro(const MacroObject& macro, const Arguments& arguments) {
  const MacroDefinition& definition = *macro.definition;
  const size_t count = definition.parameters.size();
  const size_t defaults = definition.defaults.size();
  Inner inner(*this, macro.scope);
  std::vector<bool> used(arguments.named.size());
  const auto named = [&](std::string_view name) -> const Value* {
    for (size_t i = 0; i < arguments.named.size(); ++i) {
      if (!used[i] && arguments.named[i].first == name) {
        used[i] = true;
        return &arguments.named[i].second;
      }
    }
    return nullptr;
  };
  // Defaults may name earlier parameters, so that these are set first.
  std::vector<size_t> missing;
  bool takes_caller = false;
  for (size_t i = 0; i < count; ++i) {
    takes_caller = takes_caller || definition.names[i] == "caller";
    const Value* value = i < arguments.positional.size()
                             ? &arguments.positional[i]
                             : named(definition.names[i]);
    if (value == nullptr) {
      missing.push_back(i);
    } else {
      inner.get()->Set(definition.parameters[i], *value);
    }
  }
  if (definition.uses_caller && !takes_caller) {
    const Value* caller = named("caller");
    inner.get()->Set(program_.caller,
                     caller != nullptr ? *caller : MakeUndefined("no caller"));
  }
  DictionaryBuilder rest(&budget_);
  for (size_t i = 0; i < arguments.named.size(); ++i) {
    if (used[i]) continue;
    if (!definition.uses_kwargs) {
      Fail(StrCat("an argument of macro ", Quoted(definition.name)),
           Quoted(arguments.named[i].first));
    }
    rest.Set(MakeString(arguments.named[i].first), arguments.named[i].second);
  }
  if (definition.uses_kwargs) inner.get()->Set(program_.kwargs, rest.Take());
  if (definition.uses_varargs) {
    const auto first =
        arguments.positional.begin() + static_cast<std::ptrdiff_t>(std::min(
                                           count, arguments.positional.size()));
    inner.get()->Set(
        program_.varargs,
        MakeRow(&budget_, RowType::kTuple,
                std::vector<Value>(first, arguments.positional.end())));
  } else if (arguments.positional.size() > count) {
    Fail(StrCat("at most ", count, " arguments of macro ",
                Quoted(definition.name)),
         StrCat(arguments.positional.size()));
  }
  for (const size_t i : missing) {
    Value value = MakeUndefined(
        StrCat("parameter ", Quoted(definition.names[i]), " was not provided"));
    if (i >= count - defaults) {
      value = Evaluate(*definition.defaults[i - (count - defaults)]);
    }
    inner.get()->Set(definition.parameters[i], std::move(value));
  }
  TextBuilder body(&budget_);
  const Restore out(out_, &body);
  Execute(definition.body);
  return MakeString(body.Take());
}

}  // namespace tarn::jinja
