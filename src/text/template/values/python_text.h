// Characters and case as Python's str sees them. Strings are UTF-8; bytes that
// are not UTF-8 count as characters, one for each invalid part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/template/values/marked_text.h"

namespace tarn::jinja {

struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 1;
};
/// The first character of a text that is not empty.
CodePoint ReadCodePoint(std::string_view text);
/// Where the character before `at`, which is above 0, begins.
size_t Before(std::string_view text, size_t at);

bool IsAscii(std::string_view text);
/// Characters of a text. O(bytes).
size_t CountCharacters(std::string_view text);
/// The byte at which character number `index` begins; the size of the text
/// from its last character on. O(bytes).
size_t ByteOffset(std::string_view text, bool ascii, size_t index);

/// str.isspace, also what the sandboxed strip and split take.
bool IsSpace(uint32_t c);
/// Where str.splitlines cuts.
bool IsLineBreak(uint32_t c);
/// False for what repr() escapes.
bool IsPrintable(uint32_t c);
/// "\x1b", "\u200b", "\U000e0001".
std::string HexEscape(uint32_t c);

bool IsAlpha(uint32_t c);
bool IsDecimal(uint32_t c);
bool IsNumeric(uint32_t c);
bool IsLower(uint32_t c);
bool IsUpper(uint32_t c);
bool IsIdentifierStart(uint32_t c);
bool IsIdentifierPart(uint32_t c);

enum class Case { kLower, kUpper, kTitle, kCapitalize, kSwap, kFold };
/// Python's lower, upper, title, capitalize, swapcase and casefold; every
/// character keeps its mark.
MarkedText ChangeCase(Budget& budget, const MarkedText& text, Case how);

}  // namespace tarn::jinja
