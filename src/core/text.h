// Text from outside, made safe to put into an error message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tarn {

/// At most `max_bytes` of `text` on one line of printable ASCII: other bytes
/// and backslashes become \xNN, a longer text ends in "...".
std::string Printable(std::string_view text, size_t max_bytes = 64);

/// The same between single quotes.
std::string Quoted(std::string_view text, size_t max_bytes = 64);

/// The text for the life of the program, the same address for equal texts:
/// names in rows of registries. Thread-safe; never freed.
const char* KeptText(const std::string& text);

/// The parts of a text between separators: one more than separators; "a,,b" has
/// an empty one.
std::vector<std::string_view> Split(std::string_view text, char separator);

}  // namespace tarn
