#include "runtime/chat/tool_forms/python_values.h"

#include <cstdint>

#include "core/json.h"
#include "runtime/chat/tool_forms/argument_types.h"
#include "runtime/chat/tool_forms/reader.h"
#include "text/utf8.h"

namespace tarn {
namespace {

bool IsWordByte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_';
}

// The value of `count` hexadecimal digits at the head; empty: too few.
std::optional<uint32_t> HexDigits(std::string_view text, size_t count) {
  if (text.size() < count) return std::nullopt;
  uint32_t value = 0;
  for (const char digit : text.substr(0, count)) {
    const char low = digit >= 'A' && digit <= 'F'
                         ? static_cast<char>(digit - 'A' + 'a')
                         : digit;
    if (low >= '0' && low <= '9') {
      value = value << 4 | static_cast<uint32_t>(low - '0');
    } else if (low >= 'a' && low <= 'f') {
      value = value << 4 | static_cast<uint32_t>(low - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return value;
}

// Takes the digits of \x, \u or \U, and the second half of a pair of
// surrogates, as JSON writes them. False for what is no character.
bool TakeCodePoint(size_t digits, std::string_view& rest, std::string& out) {
  std::optional<uint32_t> code = HexDigits(rest, digits);
  if (!code) return false;
  rest.remove_prefix(digits);
  if (*code >= 0xD800 && *code < 0xDC00 && rest.starts_with("\\u")) {
    const auto low = HexDigits(rest.substr(2), 4);
    if (!low || *low < 0xDC00 || *low > 0xDFFF) return false;
    rest.remove_prefix(6);
    code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
  }
  if (!IsScalarValue(*code)) return false;
  AppendUtf8(*code, out);
  return true;
}

// Takes what comes after a backslash. An escape that Python does not know
// stays as it is, with its backslash.
bool TakeEscape(std::string_view& rest, std::string& out) {
  if (rest.empty()) return false;
  const char kind = rest.front();
  rest.remove_prefix(1);
  constexpr std::string_view kPlain = "ntrbfva0\\'\"/";
  constexpr std::string_view kMeant("\n\t\r\b\f\v\a\0\\'\"/", 12);
  if (const size_t at = kPlain.find(kind); at != kPlain.npos) {
    out += kMeant[at];
    return true;
  }
  if (kind == 'x') return TakeCodePoint(2, rest, out);
  if (kind == 'u') return TakeCodePoint(4, rest, out);
  if (kind == 'U') return TakeCodePoint(8, rest, out);
  if (kind == '\n') return true;  // a text that continues on the next line
  out += '\\';
  out += kind;
  return true;
}

// Takes a text with its quotes and appends it as JSON.
bool TakeQuoted(std::string_view& rest, std::string& json) {
  const char quote = rest.front();
  rest.remove_prefix(1);
  std::string text;
  while (!rest.empty()) {
    const char byte = rest.front();
    rest.remove_prefix(1);
    if (byte == quote) {
      json += JsonString(text);
      return true;
    }
    if (byte != '\\') {
      text += byte;
    } else if (!TakeEscape(rest, text)) {
      return false;
    }
  }
  return false;
}

// Takes a word or a number. The parser of JSON sees what it is.
void TakeWord(std::string_view& rest, std::string& json) {
  size_t size = 1;
  while (size < rest.size() && IsWordByte(rest[size])) ++size;
  const std::string_view word = rest.substr(0, size);
  rest.remove_prefix(size);
  if (word == "True") {
    json += "true";
  } else if (word == "False") {
    json += "false";
  } else if (word == "None") {
    json += "null";
  } else {
    json += word;
  }
}

}  // namespace

bool PythonExtent::Feed(char byte) {
  if (quote_ != 0) {
    if (escaped_) {
      escaped_ = false;
    } else if (byte == '\\') {
      escaped_ = true;
    } else if (byte == quote_) {
      quote_ = 0;
    }
    return true;
  }
  switch (byte) {
    case '"':
    case '\'':
      quote_ = byte;
      return true;
    case '(':
    case '[':
    case '{':
      return ++depth_ <= kMaxJsonDepth;
    case ')':
    case ']':
    case '}':
      return depth_-- > 0;
    default:
      return true;
  }
}

std::optional<std::string> JsonOfPython(std::string_view literal) {
  // Tokens are translated one by one; whether they are a value in this order
  // is for the parser of JSON to say.
  std::string json;
  std::string_view rest = Trimmed(literal);
  while (!rest.empty()) {
    const char byte = rest.front();
    if (byte == '"' || byte == '\'') {
      if (!TakeQuoted(rest, json)) return std::nullopt;
      continue;
    }
    if (IsWordByte(byte)) {
      TakeWord(rest, json);
      continue;
    }
    rest.remove_prefix(1);
    if (byte == ',') {
      const size_t next = rest.find_first_not_of(" \t\r\n");
      if (next != rest.npos &&
          (rest[next] == ']' || rest[next] == ')' || rest[next] == '}')) {
        continue;  // Python allows a comma after the last element
      }
    }
    json += byte == '(' ? '[' : byte == ')' ? ']' : byte;
  }
  const auto value = ParseStrictJson(json, "argument", json.size());
  if (!value.ok()) return std::nullopt;
  return json;
}

std::optional<std::vector<PythonArgument>> PythonArguments(
    std::string_view text) {
  std::vector<PythonArgument> arguments;
  while (true) {
    text = Trimmed(text);
    if (text.empty()) return arguments;
    size_t name = 0;
    while (name < text.size() && IsWordByte(text[name])) ++name;
    PythonArgument& argument = arguments.emplace_back();
    argument.name = text.substr(0, name);
    text = Trimmed(text.substr(name));
    if (name == 0 || !text.starts_with('=')) return std::nullopt;
    text.remove_prefix(1);
    PythonExtent extent;
    size_t size = 0;
    while (size < text.size() && !(extent.Outside() && text[size] == ',')) {
      if (!extent.Feed(text[size++])) return std::nullopt;
    }
    argument.value = text.substr(0, size);
    text.remove_prefix(size);
    if (!text.empty()) text.remove_prefix(1);
  }
}

}  // namespace tarn
