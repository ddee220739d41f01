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

std::span<const WeightFormat* const> GroupFormats() {
  static constexpr const WeightFormat* kFormats[] = {
#define TARN_GROUP_FORMAT(format) &format,
#include "kernels/matmul/formats/group_list.inc"
#undef TARN_GROUP_FORMAT
  };
  return kFormats;
}

const WeightFormat* FormatOf(const GroupScheme& scheme) {
  for (const WeightFormat* format : GroupFormats()) {
    if (*format->scheme == scheme) return format;
  }
  return nullptr;
}

const WeightFormat& ExactFormat(const WeightFormat& format) {
  return format.exact != nullptr ? *format.exact : format;
}

double BytesPerWeight(const WeightFormat& format) {
  constexpr int64_t kInputs = 4096;  // whole groups of any format
  return static_cast<double>(format.panel_bytes(kInputs)) /
         static_cast<double>(kInputs * kPanelOutputs);
}

}  // namespace tarn
