// What a source says, before it is an automaton: rules, and expressions in an
// arena that name each other by index. All three readers make these.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "text/grammar/code_points.h"

namespace tarn::grammar {

using ExpressionId = int32_t;
using RuleId = int32_t;

inline constexpr int64_t kUnbounded = -1;

struct Expression {
  enum Kind {
    kNothing,   // no text at all, not even an empty one
    kEmpty,     // the empty text
    kText,      // `text`
    kSet,       // one character of `set`
    kSequence,  // the children in order
    kChoice,    // one of the children
    kRepeat,    // children[0], `low` to `high` times
    kRule,      // a sentence of `rule`
    /// Children with children[0], a separator, between those that are there:
    /// child i + 1 may be absent unless required[i], the order stays, and
    /// children[tail], where tail is not 0, may follow any number of times.
    kMembers,
    /// The same, but child i + 1 needs those before it and the first `low` must
    /// be there.
    kItems,
    kUntil,  // any text up to the first `text` (ASCII), and that
  } kind = kEmpty;
  std::string text = {};
  CodePointSet set = {};
  std::vector<ExpressionId> children = {};
  std::vector<bool> required = {};
  int64_t low = 0, high = 0;
  RuleId rule = 0;
  bool tail = false;  // kMembers: the last child repeats
  int32_t depth = 0;  // levels of expressions, set by Source::Add
};

struct Rule {
  std::string name;
  ExpressionId body = -1;  // -1: not defined yet
  /// A rule that many others call stays one, so that its nodes' masks are
  /// computed once.
  bool keep = false;
  std::string where = {};  // of the source, for errors; may be empty
};

/// Rule 0 is the root.
struct Source {
  std::vector<Expression> expressions;
  std::vector<Rule> rules;

  /// Throws FormatError above kMaxExpressionDepth: expressions are written by
  /// recursion.
  ExpressionId Add(Expression expression);
  ExpressionId Empty() { return Add({.kind = Expression::kEmpty}); }
  ExpressionId Nothing() { return Add({.kind = Expression::kNothing}); }
  ExpressionId Text(std::string text) {
    return Add({.kind = Expression::kText, .text = std::move(text)});
  }
  ExpressionId Set(CodePointSet set) {
    return Add({.kind = Expression::kSet, .set = std::move(set)});
  }
  ExpressionId Sequence(std::vector<ExpressionId> children) {
    if (children.size() == 1) return children[0];
    return Add(
        {.kind = Expression::kSequence, .children = std::move(children)});
  }
  ExpressionId Choice(std::vector<ExpressionId> children) {
    if (children.size() == 1) return children[0];
    return Add({.kind = Expression::kChoice, .children = std::move(children)});
  }
  ExpressionId Repeat(ExpressionId child, int64_t low, int64_t high) {
    return Add({.kind = Expression::kRepeat,
                .children = {child},
                .low = low,
                .high = high});
  }
  ExpressionId Optional(ExpressionId child) { return Repeat(child, 0, 1); }
  ExpressionId Call(RuleId rule) {
    return Add({.kind = Expression::kRule, .rule = rule});
  }
  RuleId AddRule(std::string name, ExpressionId body = -1, bool keep = false) {
    rules.push_back({std::move(name), body, keep});
    return static_cast<RuleId>(rules.size()) - 1;
  }
};

}  // namespace tarn::grammar
