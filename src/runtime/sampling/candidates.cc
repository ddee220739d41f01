#include "runtime/sampling/candidates.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/error.h"
#include "kernels/row_argmax/row_argmax.h"

namespace tarn {
namespace {

// The definition of BestOf, for rows of either precision.
template <typename Logit>
std::vector<Candidate> BestOfRow(std::span<const Logit> logits, size_t keep) {
  // A buffer of at most 2 * keep is cut back whenever it fills: no full sort.
  const size_t vocab = logits.size();
  keep = std::min(vocab, keep);
  std::vector<Candidate> list;
  list.reserve(std::min(vocab, 2 * keep));
  Candidate worst_kept{-std::numeric_limits<double>::infinity(), -1};
  for (size_t id = 0; id < vocab; ++id) {
    const Candidate candidate{double{logits[id]}, static_cast<int32_t>(id)};
    if (!Better(candidate, worst_kept)) continue;
    list.push_back(candidate);
    if (list.size() == 2 * keep) {
      KeepBest(list, keep);
      worst_kept = list[keep - 1];  // where nth_element put it
    }
  }
  KeepBest(list, keep);
  return list;
}

}  // namespace

int32_t CheckedArgmax(std::span<const float> logits) {
  if (logits.empty() ||
      logits.size() > size_t{std::numeric_limits<int32_t>::max()}) {
    throw ShapeError("sample: logits", "1 to 2^31 - 1 values",
                     StrCat(logits.size()));
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const int64_t best = RowArgmax(logits.data(), std::ssize(logits));
  if (best < 0) {
    const auto at = std::find_if_not(logits.begin(), logits.end(),
                                     [](float x) { return x < kInfinity; });
    throw NumericError("sample: logits", "no NaN and no +inf",
                       StrCat(*at, " at id ", at - logits.begin()));
  }
  if (logits[static_cast<size_t>(best)] == -kInfinity) {
    throw NumericError("sample: logits", "a finite logit",
                       StrCat("-inf in all ", logits.size(), " places"));
  }
  return static_cast<int32_t>(best);
}

std::vector<Candidate> BestOf(std::span<const float> logits, size_t count) {
  return BestOfRow(logits, count);
}

void KeepBest(std::vector<Candidate>& list, size_t count) {
  if (list.size() <= count) return;
  std::nth_element(list.begin(),
                   list.begin() + static_cast<ptrdiff_t>(count - 1), list.end(),
                   Better);
  list.resize(count);
}

Candidates::Candidates(std::span<const float> logits)
    : logits_(logits), best_id_(CheckedArgmax(logits)) {}

void Candidates::UseRow() {
  if (row_.empty()) row_.assign(logits_.begin(), logits_.end());
}

void Candidates::AddBias(std::span<const LogitBias> biases) {
  if (biases.empty()) return;
  UseRow();
  for (const LogitBias& bias : biases) {
    const auto id = static_cast<size_t>(bias.token);
    if (id < row_.size()) row_[id] += bias.bias;
  }
}

void Candidates::Mask(std::span<const uint32_t> allowed) {
  if (allowed.empty()) return;
  if (allowed.size() < (logits_.size() + 31) / 32) {
    throw ShapeError("sample: allowed",
                     StrCat("a bit for each of ", logits_.size(), " tokens"),
                     StrCat(32 * allowed.size(), " bits"));
  }
  UseRow();
  bool any = false;
  for (size_t id = 0; id < row_.size(); ++id) {
    if ((allowed[id / 32] >> (id % 32) & 1) == 0) {
      row_[id] = -std::numeric_limits<double>::infinity();
    } else {
      any = any || row_[id] > -std::numeric_limits<double>::infinity();
    }
  }
  if (!any) {
    throw NumericError("sample: allowed", "a token whose logit is finite",
                       "none");
  }
}

void Candidates::MakeList() { KeepTop(logits_.size()); }

void Candidates::KeepTop(size_t count) {
  if (listed_) {
    if (count >= list_.size()) return;
    if (sorted_) {
      list_.resize(count);
    } else {
      KeepBest(list_, count);
    }
    return;
  }
  if (row_.empty()) {
    const Candidate best{double{logits_[static_cast<size_t>(best_id_)]},
                         best_id_};
    list_ = count == 1 ? std::vector{best} : BestOfRow(logits_, count);
    best_ = best.logit;
  } else {
    Replace(BestOfRow(std::span<const double>(row_), count), false);
  }
  listed_ = true;
  sorted_ = count == 1;
}

void Candidates::Replace(std::vector<Candidate> list, bool sorted) {
  if (list.empty()) {
    throw NumericError("sample: logits", "a token that may be drawn",
                       "a logit_bias that allows none");
  }
  list_ = std::move(list);
  sorted_ = sorted;
  best_ = sorted ? list_.front().logit
                 : std::min_element(list_.begin(), list_.end(), Better)->logit;
}

void Candidates::Sort() {
  if (!listed_) MakeList();
  if (!sorted_) std::sort(list_.begin(), list_.end(), Better);
  sorted_ = true;
}

double Candidates::Weight(const Candidate& c) const {
  return std::exp(Relative(c));
}

double Candidates::Total() {
  double total = 0;
  for (const Candidate& c : list()) total += Weight(c);
  return total;
}

}  // namespace tarn
