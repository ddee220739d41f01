// JSON from outside whose objects keep their members' order, as chat templates
// write them. Included by .cc files only, as core/json.h.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/error.h"

namespace tarn {

/// ParseStrictJson with members in the order of the text: the same rules and
/// errors. O(bytes), also for objects with many members; reading a member by
/// its name is linear in their count. Thread-safe.
Result<nlohmann::ordered_json> ParseOrderedJson(std::string_view text,
                                                const std::string& where,
                                                uint64_t max_bytes);

}  // namespace tarn
