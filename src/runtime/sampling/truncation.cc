#include "runtime/sampling/truncation.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace tarn {
namespace {

size_t LeastKept(const SamplerOptions& options) {
  return std::max<size_t>(1, static_cast<size_t>(options.min_keep));
}

// Keeps those of which keep(candidate), the best among them, or the `least`
// best where these are more.
template <typename Keep>
void KeepWhere(Candidates& candidates, size_t least, const Keep& keep) {
  const std::vector<Candidate>& list = candidates.list();
  std::vector<Candidate> kept;
  for (const Candidate& c : list) {
    if (keep(c)) kept.push_back(c);
  }
  if (kept.size() < least) {
    candidates.KeepTop(least);
  } else if (kept.size() < list.size()) {
    candidates.Replace(std::move(kept), candidates.sorted());
  }
}

}  // namespace

void TopNSigma(Candidates& candidates, const SamplerOptions& options) {
  if (options.top_n_sigma <= 0) return;
  const std::vector<Candidate>& list = candidates.list();
  const auto n = static_cast<double>(list.size());
  double sum = 0, squares = 0;
  double best = list.front().logit;
  for (const Candidate& c : list) {
    sum += c.logit;
    best = std::max(best, c.logit);
  }
  const double mean = sum / n;
  for (const Candidate& c : list) {
    squares += (c.logit - mean) * (c.logit - mean);
  }
  const double least = best - options.top_n_sigma * std::sqrt(squares / n);
  KeepWhere(candidates, LeastKept(options),
            [&](const Candidate& c) { return c.logit >= least; });
}

void TopK(Candidates& candidates, const SamplerOptions& options) {
  if (options.top_k == 0) return;
  candidates.KeepTop(
      std::max(static_cast<size_t>(options.top_k), LeastKept(options)));
}

void TypicalP(Candidates& candidates, const SamplerOptions& options) {
  if (options.typical_p >= 1) return;
  const std::vector<Candidate>& list = candidates.list();
  const double total = candidates.Total();
  const double log_total = std::log(total);
  double entropy = log_total;
  for (const Candidate& c : list) {
    const double weight = candidates.Weight(c);
    // A weight that is 0 in double adds 0, though its logarithm is infinite.
    if (weight > 0) entropy -= weight / total * candidates.Relative(c);
  }
  struct Scored {
    double distance;
    Candidate candidate;
  };
  std::vector<Scored> heap;
  heap.reserve(list.size());
  for (const Candidate& c : list) {
    heap.push_back({std::abs(log_total - candidates.Relative(c) - entropy), c});
  }
  const auto later = [](const Scored& a, const Scored& b) {
    return a.distance > b.distance ||
           (a.distance == b.distance && Worse(a.candidate, b.candidate));
  };
  std::make_heap(heap.begin(), heap.end(), later);
  std::vector<Candidate> kept;
  double mass = 0;
  while (!heap.empty() && (mass <= options.typical_p * total ||
                           kept.size() < LeastKept(options))) {
    std::pop_heap(heap.begin(), heap.end(), later);
    kept.push_back(heap.back().candidate);
    heap.pop_back();
    mass += candidates.Weight(kept.back());
  }
  candidates.Replace(std::move(kept), false);
}

void TopP(Candidates& candidates, const SamplerOptions& options) {
  if (options.top_p >= 1) return;
  const double wanted = options.top_p * candidates.Total();
  const bool sorted = candidates.sorted();
  // A heap popped on demand in place of a sort.
  std::vector<Candidate> list = candidates.TakeList();
  if (!sorted) std::make_heap(list.begin(), list.end(), Worse);
  std::vector<Candidate> kept;
  double mass = 0;
  while (kept.size() < list.size() &&
         (mass < wanted || kept.size() < LeastKept(options))) {
    kept.push_back(sorted ? list[kept.size()] : list.front());
    mass += candidates.Weight(kept.back());
    if (sorted) continue;
    std::pop_heap(list.begin(),
                  list.end() - static_cast<ptrdiff_t>(kept.size() - 1), Worse);
  }
  candidates.Replace(std::move(kept), true);
}

void MinP(Candidates& candidates, const SamplerOptions& options) {
  if (options.min_p <= 0) return;
  KeepWhere(candidates, LeastKept(options), [&](const Candidate& c) {
    return candidates.Weight(c) >= options.min_p;
  });
}

void Xtc(Candidates& candidates, const SamplerOptions& options,
         double uniform) {
  if (options.xtc_probability <= 0 || options.xtc_threshold > 0.5 ||
      uniform > options.xtc_probability) {
    return;
  }
  const double least = options.xtc_threshold * candidates.Total();
  const std::vector<Candidate>& list = candidates.list();
  size_t likely = 0;
  const Candidate* last = nullptr;
  for (const Candidate& c : list) {
    if (candidates.Weight(c) < least) continue;
    ++likely;
    if (last == nullptr || Worse(c, *last)) last = &c;
  }
  if (likely < 2 || list.size() - likely + 1 < LeastKept(options)) return;
  const Candidate kept = *last;
  KeepWhere(candidates, 1,
            [&](const Candidate& c) { return !Better(c, kept); });
}

}  // namespace tarn
