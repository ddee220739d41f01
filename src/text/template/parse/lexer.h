// Template source to tokens, with Jinja's rules for white space around tags
// (trim_blocks and lstrip_blocks are on).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/values/fault.h"

namespace tarn::jinja {

enum class TokenType : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenType type = TokenType::kEnd;
  Position at;
  std::string text;  // the data, name, string without escapes, or operator
  int64_t integer = 0;
  double real = 0;
};

/// All tokens of a source, the last of type kEnd. Throws Fault. O(bytes).
std::vector<Token> Tokenize(std::string_view source);

}  // namespace tarn::jinja
