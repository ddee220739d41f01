// Which tokens of a text calibration reads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tarn {

/// At most `count` tokens of a text, in runs of `sequence` that are evenly
/// spaced from its beginning to its end and do not overlap: a text whose
/// subjects change is read as a whole. All of a text that has no more, in
/// order; the first `count` where that is less than a run. sequence > 0.
std::vector<int32_t> SpreadTokens(std::span<const int32_t> text, int64_t count,
                                  int64_t sequence);

}  // namespace tarn
