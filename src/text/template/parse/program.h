// A parsed template: a tree of statements and expressions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/values/fault.h"
#include "text/template/values/value.h"

namespace tarn::jinja {

/// A variable's name, as a row of Program::names.
using Symbol = uint32_t;

struct Filter;
struct Test;

enum class ExpressionType : uint8_t {
  kConstant,
  kName,
  kList,
  kTuple,
  kDictionary,  // operands: key, value, key, value, ...
  kAttribute,   // operand 0 . text
  kItem,        // operand 0 [ operand 1 ]
  kSlice,   // operand 0 [ operand 1 : operand 2 : operand 3 ], null if absent
  kCall,    // operand 0 ( arguments )
  kFilter,  // operand 0 | text ( arguments ); null within filter blocks
  kTest,    // operand 0 is text ( arguments )
  kNot,
  kMinus,
  kPlus,
  kArithmetic,  // operand 0 `operation` operand 1
  kConcat,      // operands joined by ~
  kCompare,     // operand 0 comparisons[0] operand 1 comparisons[1] ...
  kAnd,
  kOr,
  kCondition,  // operand 0 if operand 1 else operand 2, null if absent
};

enum class Operation : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow
};
enum class Comparison : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Expression;
using ExpressionPointer = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPointer> positional;
  std::vector<std::pair<std::string, ExpressionPointer>> named;
  ExpressionPointer star, double_star;  // *x, **x
};

struct Expression {
  ExpressionType type = ExpressionType::kConstant;
  Operation operation = Operation::kAdd;
  Position at;
  uint32_t depth = 1;  // levels of expressions, itself included
  Symbol symbol = 0;
  std::vector<ExpressionPointer> operands;
  std::vector<Comparison> comparisons;
  CallArguments arguments;
  std::string text;
  Value constant;
  const Filter* filter = nullptr;  // null: unknown, an error when it runs
  const Test* test = nullptr;
};

/// What a loop or `set` assigns to.
struct Target {
  enum Type : uint8_t { kName, kAttribute, kTuple } type = kName;
  Symbol symbol = 0;
  std::string attribute;  // of the namespace `symbol`
  std::vector<Target> parts;
  Position at;
};

enum class StatementType : uint8_t {
  kText,
  kOutput,
  kIf,
  kFor,
  kBreak,
  kContinue,
  kSet,
  kSetBlock,
  kWith,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kScope,  // generation
};

struct Statement;
using Block = std::vector<Statement>;

struct MacroDefinition {
  std::string name;
  std::vector<Symbol> parameters;
  std::vector<std::string> names;           // of the parameters
  std::vector<ExpressionPointer> defaults;  // of the last parameters
  Block body;
  // Whether the body names them, and the parameters do not.
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Statement {
  StatementType type = StatementType::kText;
  Position at;
  std::string text;
  /// kOutput: value; kIf: condition of each branch; kFor: iterable, filter or
  /// null; kSet: value; kSetBlock: filters or null; kWith: values; kCallBlock:
  /// call; kFilterBlock: filters.
  std::vector<ExpressionPointer> expressions;
  std::vector<Target> targets;
  std::vector<Block> blocks;  // kIf: each branch, then else; kFor: body, else
  std::unique_ptr<MacroDefinition> macro;
};

struct Program {
  Block body;
  std::vector<std::string> names;  // by Symbol
  // Names with a meaning.
  Symbol loop = 0, caller = 0, varargs = 0, kwargs = 0;
};

/// Throws Fault.
std::unique_ptr<const Program> ParseProgram(std::string_view source);

}  // namespace tarn::jinja
