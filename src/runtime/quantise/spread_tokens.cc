#include "runtime/quantise/spread_tokens.h"

namespace tarn {

std::vector<int32_t> SpreadTokens(std::span<const int32_t> text, int64_t count,
                                  int64_t sequence) {
  const int64_t length = std::ssize(text), runs = count / sequence;
  if (length <= count) return {text.begin(), text.end()};
  if (runs < 2) return {text.begin(), text.begin() + (runs ? sequence : count)};
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < runs; ++i) {
    const auto begin = text.begin() + i * (length - sequence) / (runs - 1);
    tokens.insert(tokens.end(), begin, begin + sequence);
  }
  return tokens;
}

}  // namespace tarn
