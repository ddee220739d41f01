#include "data/pairs/batches.h"

#include <algorithm>
#include <numeric>

#include "core/rng.h"

namespace tarn::train {
namespace {

// Streams of the seed for epochs: windows use those below 2^40, weights and
// dropout the last two (trainer.cc).
constexpr uint64_t kEpochStream = uint64_t{1} << 62;

// Fisher-Yates from counter-based numbers.
void ShuffleAll(std::vector<int64_t>& values, Rng& rng) {
  for (size_t left = values.size(); left > 1; --left) {
    std::swap(values[left - 1], values[rng.Below(left)]);
  }
}

}  // namespace

BatchOrder::BatchOrder(const Examples& examples, int64_t batch, uint64_t seed)
    : seed_(seed),
      batch_(std::min(batch, examples.size())),
      batches_(examples.size() / batch_) {
  lengths_.reserve(examples.size());
  for (int64_t i = 0; i < examples.size(); ++i) {
    lengths_.push_back(static_cast<int32_t>(examples.input(i).size() +
                                            examples.target(i).size()));
  }
}

void BatchOrder::Shuffle(int64_t epoch) {
  Rng rng(seed_, kEpochStream + static_cast<uint64_t>(epoch));
  order_.resize(lengths_.size());
  std::iota(order_.begin(), order_.end(), int64_t{0});
  ShuffleAll(order_, rng);
  order_.resize(batches_ * batch_);
  const int64_t pool = kPoolBatches * batch_;
  for (int64_t begin = 0; begin < batches_ * batch_; begin += pool) {
    const int64_t end = std::min(begin + pool, batches_ * batch_);
    std::stable_sort(
        order_.begin() + begin, order_.begin() + end,
        [&](int64_t a, int64_t b) { return lengths_[a] < lengths_[b]; });
  }
  firsts_.resize(batches_);
  for (int64_t i = 0; i < batches_; ++i) firsts_[i] = i * batch_;
  ShuffleAll(firsts_, rng);
  epoch_ = epoch;
}

std::vector<int64_t> BatchOrder::Batch(int64_t index) {
  if (index / batches_ != epoch_) Shuffle(index / batches_);
  const auto first = order_.begin() + firsts_[index % batches_];
  return {first, first + batch_};
}

}  // namespace tarn::train
