// Encodings of tensors in groups: the blocks of core/groups/group_scheme.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

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

/// The scheme, or the same with a smaller group, in which a tensor of this
/// shape takes the fewest bytes: rows that do not fill their last group waste
/// the rest. Nothing for a tensor of more than two axes whose rows are whole
/// groups of no size, or of one axis.
std::optional<GroupScheme> FittingScheme(GroupScheme scheme,
                                         const std::vector<int64_t>& shape);

}  // namespace tarn
