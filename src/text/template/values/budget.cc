#include "text/template/values/budget.h"

#include "text/template/values/fault.h"

namespace tarn::jinja {

void Budget::FailSteps() const {
  Fail(StrCat("at most ", limits_.max_steps, " steps"), "more");
}

void Budget::FailMemory() const {
  Fail(StrCat("at most ", limits_.max_memory_bytes, " bytes of values"),
       "more");
}

void Budget::FailDepth() const {
  Fail(StrCat("at most ", limits_.max_depth, " nested evaluations"), "more");
}

}  // namespace tarn::jinja
