#include "runtime/sampling/mirostat.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tarn {
namespace {

constexpr size_t kFitted = 100;  // m of the paper

// k of the paper's algorithm 1 for n candidates of a vocabulary: may be
// anything for a distribution that is not Zipf's, and is then cut to 1 to n.
size_t MirostatK(const Candidates& candidates, std::vector<Candidate> best,
                 size_t n, double mu) {
  KeepBest(best, kFitted);
  std::sort(best.begin(), best.end(), Better);
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < best.size(); ++i) {
    const auto rank = static_cast<double>(i);
    const double t = std::log((rank + 2) / (rank + 1));
    const double ratio =
        candidates.Relative(best[i]) - candidates.Relative(best[i + 1]);
    products += t * ratio;
    squares += t * t;
  }
  const double s = products / squares;
  const double epsilon = s - 1;
  const double log_vocab = std::log(static_cast<double>(candidates.vocab()));
  // epsilon / (1 - vocab^-epsilon), whose limit at 0 is 1 / log(vocab).
  const double slope = epsilon == 0
                           ? 1 / log_vocab
                           : epsilon / -std::expm1(-epsilon * log_vocab);
  const double k = std::pow(slope * std::exp2(mu), 1 / s);
  if (!(k >= 1)) return 1;
  return k >= static_cast<double>(n) ? n : static_cast<size_t>(k);
}

}  // namespace

void KeepMirostat(Candidates& candidates, const SamplerOptions& options,
                  double mu) {
  const std::vector<Candidate>& list = candidates.list();
  if (list.size() < 2) return;
  if (options.mirostat == 1) {
    candidates.KeepTop(MirostatK(candidates, list, list.size(), mu));
    return;
  }
  // Surprises of mu and less are probabilities of 2^-mu and more.
  const double least = std::exp2(-mu) * candidates.Total();
  std::vector<Candidate> kept;
  for (const Candidate& c : list) {
    if (candidates.Weight(c) >= least) kept.push_back(c);
  }
  if (kept.empty()) {
    candidates.KeepTop(1);
  } else if (kept.size() < list.size()) {
    candidates.Replace(std::move(kept), candidates.sorted());
  }
}

double NextMu(const SamplerOptions& options, double mu, double probability) {
  return mu - options.mirostat_eta *
                  (-std::log2(probability) - options.mirostat_tau);
}

}  // namespace tarn
