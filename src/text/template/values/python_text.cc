#include "text/template/values/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "text/template/values/special_case.h"
#include "text/utf8.h"

namespace tarn::jinja {
namespace {

utf8proc_category_t CategoryOf(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool IsCased(uint32_t c) {
  return IsLower(c) || IsUpper(c) || CategoryOf(c) == UTF8PROC_CATEGORY_LT;
}

bool IsCaseIgnorable(uint32_t c) {
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019;
  }
}

// Sigma at the end of a word: a cased character before it and none after it,
// ignorable ones aside.
bool IsFinalSigma(std::string_view text, size_t at, size_t bytes) {
  size_t before = at;
  bool cased = false;
  while (before > 0) {
    before = Before(text, before);
    const uint32_t c = ReadCodePoint(text.substr(before)).value;
    if (IsCaseIgnorable(c)) continue;
    cased = IsCased(c);
    break;
  }
  if (!cased) return false;
  for (size_t after = at + bytes; after < text.size();) {
    const CodePoint c = ReadCodePoint(text.substr(after));
    if (!IsCaseIgnorable(c.value)) return !IsCased(c.value);
    after += c.bytes;
  }
  return true;
}

const SpecialCase* FindSpecial(uint32_t c) {
  if (c < kSpecialCases[0].c) return nullptr;
  const auto* found = std::lower_bound(
      std::begin(kSpecialCases), std::end(kSpecialCases), c,
      [](const SpecialCase& row, uint32_t wanted) { return row.c < wanted; });
  return found != std::end(kSpecialCases) && found->c == c ? found : nullptr;
}

void Map(uint32_t c, Case how, std::string& out) {
  const auto point = static_cast<utf8proc_int32_t>(c);
  utf8proc_int32_t mapped = point;
  const SpecialCase* special = FindSpecial(c);
  switch (how) {
    case Case::kUpper:
      if (special != nullptr) {
        out += special->upper;
        return;
      }
      mapped = utf8proc_toupper(point);
      break;
    case Case::kTitle:
      if (special != nullptr) {
        out += special->title;
        return;
      }
      mapped = utf8proc_totitle(point);
      break;
    case Case::kFold:
      if (special != nullptr) {
        out += special->fold;
        return;
      }
      if (c == 0x130 || c == 0x1E9E) {
        out += c == 0x130 ? "i\xcc\x87" : "ss";
        return;
      }
      mapped = c == 0x3C2   ? 0x3C3
               : c == 0xB5  ? 0x3BC
               : c == 0x17F ? 's'
                            : utf8proc_tolower(point);
      break;
    default:
      if (c == 0x130) {
        out += "i\xcc\x87";
        return;
      }
      mapped = utf8proc_tolower(point);
  }
  AppendUtf8(static_cast<uint32_t>(mapped), out);
}

}  // namespace

CodePoint ReadCodePoint(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {first, 1};
  const Utf8Head head = ReadUtf8(text);
  if (head.kind != Utf8Head::kValid) return {0xFFFD, head.bytes};
  return {head.code_point, head.bytes};
}

size_t Before(std::string_view text, size_t at) {
  const size_t least = at > 4 ? at - 4 : 0;
  size_t begin = at - 1;
  while (begin > least &&
         (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  return begin;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x80;
  });
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(),
      [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

size_t ByteOffset(std::string_view text, bool ascii, size_t index) {
  if (ascii) return std::min(index, text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
    if (index-- == 0) return at;
  }
  return text.size();
}

bool IsSpace(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 ||
         c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsLineBreak(uint32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 ||
         c == 0x2028 || c == 0x2029;
}

bool IsPrintable(uint32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string HexEscape(uint32_t c) {
  char buffer[12];
  std::snprintf(buffer, sizeof buffer,
                c < 0x100     ? "\\x%02x"
                : c < 0x10000 ? "\\u%04x"
                              : "\\U%08x",
                c);
  return buffer;
}

bool IsAlpha(uint32_t c) {
  const int category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(uint32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_ND; }

bool IsNumeric(uint32_t c) {
  const int category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsLower(uint32_t c) {
  return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0;
}

bool IsUpper(uint32_t c) {
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0;
}

bool IsIdentifierStart(uint32_t c) {
  return c == '_' || IsAlpha(c) || CategoryOf(c) == UTF8PROC_CATEGORY_NL;
}

bool IsIdentifierPart(uint32_t c) {
  if (IsIdentifierStart(c)) return true;
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

MarkedText ChangeCase(Budget& budget, const MarkedText& text, Case how) {
  TextBuilder out(&budget);
  const std::string_view bytes = text.text();
  std::string mapped;
  bool begins = true;  // a word (kTitle) or the text (kCapitalize)
  bool data = false;   // the mark of `mapped`
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = ReadCodePoint(bytes.substr(at));
    Case own = how;
    if (how == Case::kTitle) own = begins ? Case::kTitle : Case::kLower;
    if (how == Case::kCapitalize) own = begins ? Case::kTitle : Case::kLower;
    const bool upper_case = how == Case::kSwap && IsUpper(c.value);
    if (how == Case::kSwap) own = upper_case ? Case::kLower : Case::kUpper;
    const bool fixed = how == Case::kSwap && !upper_case && !IsLower(c.value);
    const bool mark = text.DataAt(at);
    if (mark != data || mapped.size() > 4096) {
      out.Append(mapped, data);
      mapped.clear();
      data = mark;
    }
    if (fixed) {
      mapped += bytes.substr(at, c.bytes);
    } else if (c.value < 0x80) {
      const auto letter = static_cast<char>(c.value);
      const bool lower = letter >= 'a' && letter <= 'z';
      const bool upper = letter >= 'A' && letter <= 'Z';
      const bool raise = own == Case::kUpper || own == Case::kTitle;
      mapped += static_cast<char>(raise && lower    ? letter - 32
                                  : !raise && upper ? letter + 32
                                                    : letter);
    } else if (c.value == 0x3A3 && own == Case::kLower) {
      budget.Step();
      mapped += IsFinalSigma(bytes, at, c.bytes) ? "\xcf\x82" : "\xcf\x83";
    } else {
      Map(c.value, own, mapped);
    }
    begins = how == Case::kTitle && !IsCased(c.value);
    at += c.bytes;
  }
  out.Append(mapped, data);
  return out.Take();
}

}  // namespace tarn::jinja
