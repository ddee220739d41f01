#include "runtime/mixer/mixer_block.h"

#include <algorithm>
#include <utility>

namespace tarn {

const float* MixerBlock::RowBefore(Rows from, int64_t row, int64_t layer,
                                   int64_t tensor) const {
  // Segments follow one another: the last that begins at the row or earlier.
  const auto after = std::upper_bound(
      segments.begin(), segments.end(), row,
      [](int64_t wanted, const Segment& s) { return wanted < s.row; });
  const Segment& segment = *(after - 1);
  return row > segment.row
             ? from[row - 1]
             : std::as_const(*segment.state).Tensor(layer, tensor);
}

void MixerBlock::KeepLastRows(Rows from, int64_t layer, int64_t tensor) const {
  for (const Segment& segment : segments) {
    if (segment.count == 0) continue;
    std::copy_n(from[segment.row + segment.count - 1],
                segment.state->layout().At(layer, tensor).width,
                segment.state->Tensor(layer, tensor));
  }
}

}  // namespace tarn
