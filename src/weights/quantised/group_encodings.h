// Encodings of tensors in groups: the blocks of core/groups/group_scheme.h.
#pragma once

#include <span>
#include <string_view>

#include "core/groups/group_scheme.h"
#include "weights/encoding.h"

namespace tarn {

/// "I8_32", "I8_64", "I8_128", "I4_32", ..., and "I4M_32", ... with a minimum.
/// Encoding::scheme is set; numbers past the range of a scheme and NaN are
/// narrowed to a scale of NaN (core/groups/round_group.h).
std::span<const Encoding> GroupEncodings();

/// Throws ArgumentError for a scheme that has none.
const Encoding& GroupEncoding(const GroupScheme& scheme);

/// Null for other names.
const Encoding* FindGroupEncoding(std::string_view name);

}  // namespace tarn
