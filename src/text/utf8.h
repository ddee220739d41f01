// UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tarn {

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

/// True for a Unicode scalar value: at most U+10FFFF and no surrogate.
constexpr bool IsScalarValue(uint32_t code_point) {
  return code_point <= kMaxCodePoint &&
         !(code_point >= 0xD800 && code_point <= 0xDFFF);
}

/// The sequence at the head of some bytes.
struct Utf8Head {
  enum Kind { kValid, kInvalid, kUnfinished } kind = kInvalid;
  uint32_t code_point = 0;  // kValid only
  /// Bytes taken: the sequence (kValid), the longest part that could have begun
  /// one, at least 1 (kInvalid, Unicode 15 section 3.9), all (kUnfinished).
  size_t bytes = 0;
};

/// Reads one sequence; kUnfinished when the text ends inside a sequence that
/// is valid so far. `text` must not be empty. O(1).
Utf8Head ReadUtf8(std::string_view text);

/// Appends the 1 to 4 bytes of a scalar value.
void AppendUtf8(uint32_t code_point, std::string& out);

/// Bytes at the end of `text` that begin a sequence and do not finish it: 0 to
/// 3. A stream holds these back until the rest arrives.
size_t UnfinishedUtf8Tail(std::string_view text);

/// Whether all of it is valid. O(bytes).
bool IsUtf8(std::string_view text);

/// `text` with U+FFFD in the place of each invalid part. O(bytes).
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace tarn
