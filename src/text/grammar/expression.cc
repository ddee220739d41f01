#include "text/grammar/expression.h"

#include <algorithm>

#include "core/error.h"
#include "text/grammar/limits.h"

namespace tarn::grammar {

ExpressionId Source::Add(Expression expression) {
  for (const ExpressionId child : expression.children) {
    expression.depth = std::max(expression.depth, expressions[child].depth + 1);
  }
  if (expression.depth > kMaxExpressionDepth) {
    throw FormatError(
        "grammar",
        StrCat("at most ", kMaxExpressionDepth, " levels of expressions"),
        "more");
  }
  expressions.push_back(std::move(expression));
  return static_cast<ExpressionId>(expressions.size()) - 1;
}

}  // namespace tarn::grammar
