#include "runtime/session/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/rng.h"

namespace tarn {
namespace {

struct Candidate {
  float logit;
  int32_t id;
};

// Higher logit first, then lower id: a total order, so that every stage keeps
// the same set whatever the selection algorithm does inside.
bool Better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}
// std heaps keep the greatest on top.
bool Worse(const Candidate& a, const Candidate& b) { return Better(b, a); }

// Index of the best logit, ties to the lowest id. Throws NumericError on NaN,
// +inf, or when no logit is finite (-inf marks a masked token).
int32_t CheckedArgmax(std::span<const float> logits) {
  int64_t best = -1;
  float best_logit = -std::numeric_limits<float>::infinity();
  for (size_t id = 0; id < logits.size(); ++id) {
    const float logit = logits[id];
    if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity()) {
      throw NumericError("sample: logits", "no NaN and no +inf",
                         StrCat(logit, " at id ", id));
    }
    if (logit > best_logit) {
      best_logit = logit;
      best = static_cast<int64_t>(id);
    }
  }
  if (best < 0) {
    throw NumericError("sample: logits", "a finite logit",
                       StrCat("-inf in all ", logits.size(), " places"));
  }
  return static_cast<int32_t>(best);
}

void KeepBest(std::vector<Candidate>& candidates, size_t count) {
  if (candidates.size() <= count) return;
  std::nth_element(candidates.begin(), candidates.begin() + (count - 1),
                   candidates.end(), Better);
  candidates.resize(count);
}

// The `top_k` best (0: all) that are not masked, in no order. A buffer of at
// most 2 * top_k is cut back whenever it fills: O(vocab), no full sort.
std::vector<Candidate> TopK(std::span<const float> logits, int64_t top_k) {
  const size_t vocab = logits.size();
  const size_t keep =
      top_k == 0 ? vocab : std::min(vocab, static_cast<size_t>(top_k));
  std::vector<Candidate> candidates;
  candidates.reserve(std::min(vocab, 2 * keep));
  Candidate worst_kept{-std::numeric_limits<float>::infinity(), -1};
  for (size_t id = 0; id < vocab; ++id) {
    const Candidate candidate{logits[id], static_cast<int32_t>(id)};
    if (!Better(candidate, worst_kept)) continue;
    candidates.push_back(candidate);
    if (candidates.size() == 2 * keep) {
      KeepBest(candidates, keep);
      worst_kept = candidates[keep - 1];  // where nth_element put the k-th
    }
  }
  KeepBest(candidates, keep);
  return candidates;
}

// Returns, best first, the shortest prefix whose share of the candidates' mass
// is at least top_p, without those below min_p of the best. Both stages keep a
// prefix of one order, so a heap popped on demand replaces the sort.
std::vector<Candidate> TopPMinP(std::vector<Candidate> candidates, float best,
                                const SamplerOptions& options) {
  double total = 0;
  for (const Candidate& c : candidates)
    total += std::exp(double{c.logit} - best);
  const double wanted_mass = options.top_p >= 1
                                 ? std::numeric_limits<double>::infinity()
                                 : options.top_p * total;
  std::make_heap(candidates.begin(), candidates.end(), Worse);
  std::vector<Candidate> kept;
  double mass = 0;
  while (!candidates.empty() && mass < wanted_mass) {
    const Candidate next = candidates.front();
    const double relative = std::exp(double{next.logit} - best);
    if (!kept.empty() && relative < options.min_p) break;
    std::pop_heap(candidates.begin(), candidates.end(), Worse);
    candidates.pop_back();
    kept.push_back(next);
    mass += relative;
  }
  return kept;
}

}  // namespace

void CheckSampler(const SamplerOptions& options) {
  // Negated comparisons, so that NaN fails them.
  if (!(options.temperature <= 100)) {
    throw ArgumentError("temperature", "a number up to 100 (<= 0: greedy)",
                        StrCat(options.temperature));
  }
  if (options.top_k < 0) {
    throw ArgumentError("top_k", "0 (off) or more", StrCat(options.top_k));
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    throw ArgumentError("top_p", "a number in (0, 1] (1: off)",
                        StrCat(options.top_p));
  }
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    throw ArgumentError("min_p", "a number in [0, 1] (0: off)",
                        StrCat(options.min_p));
  }
}

int32_t Sample(std::span<const float> logits, const SamplerOptions& options,
               uint64_t position) {
  CheckSampler(options);
  if (logits.empty() ||
      logits.size() > size_t{std::numeric_limits<int32_t>::max()}) {
    throw ShapeError("sample: logits", "1 to 2^31 - 1 values",
                     StrCat(logits.size()));
  }
  const int32_t best_id = CheckedArgmax(logits);
  if (options.temperature <= 0) return best_id;
  const float best = logits[static_cast<size_t>(best_id)];
  const std::vector<Candidate> kept =
      TopPMinP(TopK(logits, options.top_k), best, options);

  std::vector<double> cumulative;  // [kept], unnormalised
  cumulative.reserve(kept.size());
  double total = 0;
  for (const Candidate& c : kept) {
    total += std::exp((double{c.logit} - best) / options.temperature);
    cumulative.push_back(total);
  }
  const double u =
      Rng(options.seed, options.stream, position).Uniform() * total;
  auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), u);
  // Only rounding of the product gives u >= total: the last of weight > 0 then.
  if (chosen == cumulative.end()) {
    chosen = std::lower_bound(cumulative.begin(), cumulative.end(), total);
  }
  return kept[static_cast<size_t>(chosen - cumulative.begin())].id;
}

}  // namespace tarn
