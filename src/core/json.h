// JSON from outside, read strictly and in bounded time and memory. Included by
// .cc files only: nlohmann::json stays out of the other headers.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"

namespace tarn {

inline constexpr size_t kMaxJsonDepth = 64;
/// Values in one document: bounds memory at some 100 bytes each, and leaves
/// room for a table of every Unicode code point.
inline constexpr uint64_t kMaxJsonValues = uint64_t{1} << 22;

/// RFC 8259, to the letter: at most `max_bytes`, kMaxJsonDepth levels and
/// kMaxJsonValues values; duplicate keys, invalid UTF-8, lone surrogates, a
/// byte order mark, NUL bytes, NaN, Infinity, numbers beyond double (1e999)
/// and anything after the document are FormatError. `where` names the source;
/// syntax errors add the byte offset. Thread-safe; no recursion on the input.
Result<nlohmann::json> ParseStrictJson(std::string_view text,
                                       const std::string& where,
                                       uint64_t max_bytes);

/// Takes one member of the outermost object; an Error ends the reading.
using JsonMember =
    std::function<std::optional<Error>(const std::string&, nlohmann::json&)>;

/// The same rules for a document that must be an object and may be large: each
/// member is handed over as soon as it is complete and then dropped, so memory
/// holds one member (of at most `max_values` values) and all keys. Members
/// before a later error have been seen: use them only if none is returned.
std::optional<Error> VisitStrictJson(std::string_view text,
                                     const std::string& where,
                                     uint64_t max_bytes, uint64_t max_values,
                                     const JsonMember& member);

/// The integer a number stands for; 256.0 counts, 0.5, "256" and true do not.
/// Empty as well outside int64, and for fractions written above 2^53, where a
/// double no longer tells neighbours apart.
std::optional<int64_t> JsonInteger(const nlohmann::json& value);

/// "an object", "the text 'abc'", "3.5": a value for an error message.
std::string JsonGiven(const nlohmann::json& value);

}  // namespace tarn
