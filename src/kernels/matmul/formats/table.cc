#include "kernels/matmul/weight_format.h"

namespace tarn {

std::span<const WeightFormat* const> WeightFormats() {
  static constexpr const WeightFormat* kFormats[] = {
#define TARN_WEIGHT_FORMAT(format) &format,
#include "kernels/matmul/formats/list.inc"
#undef TARN_WEIGHT_FORMAT
  };
  return kFormats;
}

double BytesPerWeight(const WeightFormat& format) {
  constexpr int64_t kInputs = 4096;  // whole groups of any format
  return static_cast<double>(format.panel_bytes(kInputs)) /
         static_cast<double>(kInputs * kPanelOutputs);
}

}  // namespace tarn
