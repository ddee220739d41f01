#include "runtime/sampling/token_probs.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "runtime/sampling/candidates.h"

namespace tarn {

TokenProbs TokenProbsOf(std::span<const float> logits, int32_t token,
                        int64_t count) {
  const auto best_id = static_cast<size_t>(CheckedArgmax(logits));
  if (token < 0 || static_cast<size_t>(token) >= logits.size()) {
    throw ArgumentError("token", StrCat("0 to ", logits.size() - 1),
                        StrCat(token));
  }
  if (count < 0) {
    throw ArgumentError("count", "0 or more", StrCat(count));
  }
  const double best = logits[best_id];
  double total = 0;
  for (const float logit : logits) total += std::exp(double{logit} - best);
  const double log_total = std::log(total);
  const auto prob_of = [&](double logit) {
    return static_cast<float>(logit - best - log_total);
  };
  TokenProbs probs;
  probs.token = {token, prob_of(logits[static_cast<size_t>(token)])};
  if (count == 0) return probs;
  std::vector<Candidate> top = BestOf(logits, static_cast<size_t>(count));
  std::sort(top.begin(), top.end(), Better);
  for (const Candidate& c : top) probs.top.push_back({c.id, prob_of(c.logit)});
  return probs;
}

}  // namespace tarn
