// How a model's weights are held in memory, and the words for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/matmul/weight_format.h"

namespace tarn {

/// One of the weight formats. The words are those of WeightFormats(); any other
/// format that a caller has will do as well.
class WeightType {
 public:
  static const WeightType kF32, kBF16;

  constexpr WeightType() = default;
  constexpr WeightType(const WeightFormat& format)  // NOLINT: implicit
      : format_(&format) {}
  const WeightFormat& format() const { return *format_; }
  bool operator==(const WeightType&) const = default;

 private:
  const WeightFormat* format_ = &kF32Weights;
};

inline constexpr WeightType WeightType::kF32{kF32Weights};
inline constexpr WeightType WeightType::kBF16{kBF16Weights};

/// "f32", "bf16", "int8", "int4".
const char* Name(WeightType type);
/// All words, in the order of WeightFormats().
std::vector<std::string> WeightTypeWords();
/// Throws ArgumentError that names `where` and the words for any other.
WeightType ParseWeightType(std::string_view where, std::string_view word);

}  // namespace tarn
