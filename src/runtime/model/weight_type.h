// How a model's weights are held in memory, and the words for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/matmul/weight_format.h"

namespace tarn {

/// One of the weight formats, or what the files suggest: tensors that are
/// stored in groups or as bf16 stay as they are, and others are held as float32
/// (weight_plan.h). The words are "auto" and those of WeightFormats(); any
/// other format that a caller has will do as well.
class WeightType {
 public:
  static const WeightType kAuto, kF32, kBF16;

  constexpr WeightType() = default;
  constexpr WeightType(const WeightFormat& format)  // NOLINT: implicit
      : format_(&format) {}
  /// Null: what the files suggest.
  const WeightFormat* format() const { return format_; }
  bool operator==(const WeightType&) const = default;

 private:
  const WeightFormat* format_ = nullptr;
};

inline constexpr WeightType WeightType::kAuto{};
inline constexpr WeightType WeightType::kF32{kF32Weights};
inline constexpr WeightType WeightType::kBF16{kBF16Weights};

/// "auto", "f32", ...
const char* Name(WeightType type);
/// All words, "auto" first, then in the order of WeightFormats().
std::vector<std::string> WeightTypeWords();
/// Throws ArgumentError that names `where` and the words for any other.
WeightType ParseWeightType(std::string_view where, std::string_view word);

}  // namespace tarn
