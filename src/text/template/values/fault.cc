#include "text/template/values/fault.h"

#include <utility>

namespace tarn::jinja {

void Fail(std::string wanted, std::string given) {
  throw Fault{ErrorCode::kFormat, std::move(wanted), std::move(given), {}};
}

void FailAt(Position at, std::string wanted, std::string given) {
  throw Fault{ErrorCode::kFormat, std::move(wanted), std::move(given), at};
}

Error ToError(const Fault& fault) {
  std::string where = "chat template";
  if (fault.at.line != 0) {
    where += StrCat(", line ", fault.at.line, ", column ", fault.at.column);
  }
  if (fault.wanted.empty()) {
    return Error(fault.code, StrCat(where, ": ", fault.given));
  }
  return Error(fault.code, std::move(where), fault.wanted, fault.given);
}

}  // namespace tarn::jinja
