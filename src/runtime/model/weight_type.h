// How weights are held in memory, and the words for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tarn {

enum class WeightType { kF32, kBF16 };

/// "f32" or "bf16".
const char* Name(WeightType type);
/// All words, in the order of the enum.
std::vector<std::string> WeightTypeWords();
/// Throws ArgumentError that names `where` and the words for any other.
WeightType ParseWeightType(std::string_view where, std::string_view word);

}  // namespace tarn
