#include "text/utf8.h"

#include <algorithm>

namespace tarn {
namespace {

// Well-formed lead bytes with the range of their second byte (Unicode 15,
// table 3-7); the narrowed ranges shut out overlong forms and surrogates.
struct Lead {
  int length;
  uint8_t second_low, second_high;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Head ReadUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const Lead lead = LeadOf(byte(0));
  if (lead.length == 0) return {Utf8Head::kInvalid, 0, 1};
  if (lead.length == 1) return {Utf8Head::kValid, byte(0), 1};
  // Payload bits of the lead byte: 5, 4 or 3.
  uint32_t code_point = byte(0) & (0xFFu >> (lead.length + 1));
  for (size_t i = 1; i < static_cast<size_t>(lead.length); ++i) {
    if (i == text.size()) return {Utf8Head::kUnfinished, 0, i};
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Utf8Head::kInvalid, 0, i};
    code_point = code_point << 6 | (byte(i) & 0x3Fu);
  }
  return {Utf8Head::kValid, code_point, static_cast<size_t>(lead.length)};
}

void AppendUtf8(uint32_t code_point, std::string& out) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

size_t UnfinishedUtf8Tail(std::string_view text) {
  // A sequence has at most 4 bytes, so an unfinished one starts in the last 3.
  const size_t longest = std::min<size_t>(3, text.size());
  for (size_t tail = longest; tail > 0; --tail) {
    const std::string_view end = text.substr(text.size() - tail);
    if (ReadUtf8(end).kind == Utf8Head::kUnfinished) return tail;
  }
  return 0;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    if (static_cast<uint8_t>(text[0]) < 0x80) {
      text.remove_prefix(1);
      continue;
    }
    const Utf8Head head = ReadUtf8(text);
    if (head.kind != Utf8Head::kValid) return false;
    text.remove_prefix(head.bytes);
  }
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Head head = ReadUtf8(text);
    if (head.kind == Utf8Head::kValid) {
      out.append(text.substr(0, head.bytes));
    } else {
      AppendUtf8(0xFFFD, out);
    }
    text.remove_prefix(head.bytes);
  }
  return out;
}

}  // namespace tarn
