// How the caches of softmax attention hold the keys and values of earlier
// tokens: what kernels, states and front ends share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tarn {

/// kF32: as computed. kBF16: each number rounded to the nearest bfloat16.
/// kInt8: blocks of 32 numbers of a row, each an integer from -127 to 127 times
/// the block's scale (kernels/softmax_attention/cache_rows.h). The numbers are
/// the ids in tarn.h.
enum class CacheType : int { kF32 = 0, kBF16 = 1, kInt8 = 2 };

inline constexpr CacheType kCacheTypes[] = {CacheType::kF32, CacheType::kBF16,
                                            CacheType::kInt8};

/// "f32", "bf16" or "int8".
constexpr const char* Name(CacheType type) {
  switch (type) {
    case CacheType::kF32:
      return "f32";
    case CacheType::kBF16:
      return "bf16";
    case CacheType::kInt8:
      return "int8";
  }
  return "?";
}

/// All words, in the order of kCacheTypes.
std::vector<std::string> CacheTypeWords();
/// Throws ArgumentError that names `where` and the words for any other.
CacheType ParseCacheType(std::string_view where, std::string_view word);

}  // namespace tarn
