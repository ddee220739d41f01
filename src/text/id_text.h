// Token ids as text: decimal numbers separated by white space, "3 7 10 0". For
// models whose tokens stand for no text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tarn {

/// The ids of a text; none when it is empty or all white space (space, tab,
/// line feed, carriage return). FormatError with the byte offset of anything
/// else, of a number with a leading zero, and of one that is not below
/// vocab_size (1 to 2^24). offset: where `text` begins in its source, for the
/// message only. O(bytes) time. Thread-safe.
Result<std::vector<int32_t>> IdsFromText(std::string_view text,
                                         int64_t vocab_size, uint64_t offset);

/// Appends a space and the number, so that texts of ids can be joined as they
/// are.
void AppendId(int32_t id, std::string& out);

}  // namespace tarn
