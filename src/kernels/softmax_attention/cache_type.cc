#include "kernels/softmax_attention/cache_type.h"

#include "core/error.h"
#include "core/text.h"

namespace tarn {

std::vector<std::string> CacheTypeWords() {
  std::vector<std::string> words;
  for (const CacheType type : kCacheTypes) words.emplace_back(Name(type));
  return words;
}

CacheType ParseCacheType(std::string_view where, std::string_view word) {
  std::string wanted;
  for (const CacheType type : kCacheTypes) {
    if (word == Name(type)) return type;
    wanted += (wanted.empty() ? "" : ", ") + Quoted(Name(type));
  }
  throw ArgumentError(std::string(where), "one of " + wanted, Quoted(word));
}

}  // namespace tarn
