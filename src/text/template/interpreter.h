// Runs a program over a context: one object per rendering.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/template/functions/functions.h"
#include "text/template/parse/program.h"
#include "text/template/values/budget.h"
#include "text/template/values/value.h"

namespace tarn::jinja {

/// Variables of a loop's round, a macro's call or the whole template.
class Scope {
 public:
  explicit Scope(Scope* parent) : parent_(parent) {}

  Scope* parent() const { return parent_; }
  const Value* Find(Symbol symbol) const {
    for (const auto& [own, value] : variables_) {
      if (own == symbol) return &value;
    }
    return nullptr;
  }
  void Set(Symbol symbol, Value value);
  size_t size() const { return variables_.size(); }

  /// A macro that was defined here may run later: the scope must stay.
  bool kept = false;

 private:
  Scope* parent_;
  std::vector<std::pair<Symbol, Value>> variables_;
};

struct MacroObject {
  const MacroDefinition* definition = nullptr;
  Scope* scope = nullptr;  // where it was defined
  Account account;
};

/// What `loop` shows.
struct LoopState {
  std::vector<Value> items;
  size_t next = 0;            // of items, the first that was not looked at
  std::deque<Value> pending;  // passed the filter, their round is to come
  int64_t index0 = -1;
  Value before, now;
  std::vector<Value> changed;  // the last arguments of loop.changed
  bool ever_changed = false;
  bool over = false;
};

class Machine {
 public:
  Machine(const Program& program, const RenderOptions& options);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  Budget& budget() { return budget_; }
  const RenderOptions& options() const { return options_; }

  /// A variable of the context.
  void SetVariable(std::string_view name, Value value);
  /// Throws Fault, with a position.
  MarkedText Run();

  Value MakeString(MarkedText text) {
    return MakeText(&budget_, std::move(text));
  }
  Value MakeString(std::string_view text) { return MakeText(&budget_, text); }
  NamespaceObject* NewNamespace();
  /// Calls what `function` is.
  Value Call(const Value& function, const Arguments& arguments);
  /// loop.name, or undefined.
  Value LoopAttribute(const std::shared_ptr<LoopState>& loop,
                      const std::string& name);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Inner;  // a scope as long as it lives

  // Statements (interpreter.cc).
  Flow Execute(const Block& block);
  Flow Execute(const Statement& statement);
  Flow If(const Statement& statement);
  Flow For(const Statement& statement);
  Flow Scoped(const Block& block);
  void Set(const Statement& statement);
  void CallBlock(const Statement& statement);
  MarkedText Capture(const Block& block, Flow* flow);
  void Assign(const Target& target, const Value& value);
  Value Filtered(const Expression* filters, Value value);
  Value DefineMacro(const MacroDefinition& definition);
  Value CallMacro(const MacroObject& macro, const Arguments& arguments);
  bool Advance(LoopState& loop);
  bool Accept(const Value& item);

  // Expressions (evaluate.cc).
  Value Evaluate(const Expression& expression);
  Value Name(Symbol symbol);
  Value Compare(const Expression& expression);
  Value Dispatch(const Expression& expression);
  Value Concat(const Expression& expression);
  Value Rows(const Expression& expression);
  Value EvaluateFilter(const Expression& expression);
  Value EvaluateTest(const Expression& expression);
  Value EvaluateCall(const Expression& expression);
  Arguments EvaluateArguments(const CallArguments& arguments);

  // Functions (globals.cc).
  Value CallBuiltin(Builtin builtin, const Arguments& arguments);
  Value LoopMethod(LoopState& loop, const std::string& name,
                   const Arguments& arguments);

  const Program& program_;
  const RenderOptions& options_;
  Budget budget_;
  std::vector<std::optional<Value>> variables_;  // of the template, by symbol
  Scope root_{nullptr};
  Scope* scope_ = &root_;
  TextBuilder* out_ = nullptr;
  Position at_;
  // The filter of the loop that runs innermost, for Advance.
  struct LoopFilter {
    const Target* target = nullptr;
    const Expression* condition = nullptr;
    Scope* scope = nullptr;
  };
  std::vector<std::pair<LoopState*, LoopFilter>> filters_;
  std::vector<std::unique_ptr<Scope>> kept_;
  std::vector<std::unique_ptr<NamespaceObject>> namespaces_;
  std::vector<std::unique_ptr<MacroObject>> macros_;
};

/// The built-in function of a name, or undefined.
Value GlobalOf(const std::string& name);

/// Sets one variable for each member of an object. Texts are data, except for
/// those that RenderOptions trusts.
void SetContext(Machine& machine, const nlohmann::ordered_json& context);
void SetContext(Machine& machine, std::string_view json);

}  // namespace tarn::jinja
