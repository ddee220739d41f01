#include "runtime/sampling/penalties.h"

#include <algorithm>
#include <unordered_map>

namespace tarn {

std::span<const int32_t> LastTokens(std::span<const int32_t> tokens,
                                    int64_t count) {
  if (count < 0) return tokens;
  return tokens.last(std::min(tokens.size(), static_cast<size_t>(count)));
}

bool HasPenalties(const SamplerOptions& options) {
  return options.repeat_penalty != 1 || options.presence_penalty != 0 ||
         options.frequency_penalty != 0;
}

void ApplyPenalties(Candidates& candidates, const SamplerOptions& options,
                    std::span<const int32_t> tokens) {
  if (!HasPenalties(options)) return;
  std::unordered_map<int32_t, int64_t> counts;
  for (const int32_t token : LastTokens(tokens, options.repeat_last_n)) {
    ++counts[token];
  }
  if (counts.empty()) return;
  const auto change = [&](double logit, int64_t count, double unit) {
    const double scaled = logit <= 0 ? logit * options.repeat_penalty
                                     : logit / options.repeat_penalty;
    return scaled -
           unit * (static_cast<double>(count) * options.frequency_penalty +
                   options.presence_penalty);
  };
  candidates.ChangeLogits(counts, change);
}

}  // namespace tarn
