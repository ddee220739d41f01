// What goes wrong while a template is parsed or rendered. Thrown within this
// folder only: ChatTemplate turns it into an Error.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"

namespace tarn::jinja {

/// In the source, from 1; columns count bytes.
struct Position {
  uint32_t line = 0;  // 0: unknown
  uint32_t column = 0;
};

struct Fault {
  ErrorCode code = ErrorCode::kFormat;
  std::string wanted, given;  // wanted is empty for a message of the template
  Position at;
};

/// An operation that Jinja refuses. The interpreter adds the position.
[[noreturn]] void Fail(std::string wanted, std::string given);
[[noreturn]] void FailAt(Position at, std::string wanted, std::string given);

/// "chat template, line 3, column 5: want ..., got ...", on one line.
Error ToError(const Fault& fault);

}  // namespace tarn::jinja
