#include "kernels/reformer_window/reformer_window_ref.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace tarn {

ReferenceWindow::ReferenceWindow(const ReformerWindowInputs& in, int64_t plane,
                                 std::vector<std::vector<int64_t>> position_of)
    : in_(in), plane_(plane), position_of_(std::move(position_of)) {}

int64_t ReferenceWindow::ChunkOf(int64_t r, int64_t i) const {
  const auto& order = position_of_[r];
  return (std::find(order.begin(), order.end(), i) - order.begin()) / in_.chunk;
}

int32_t ReferenceWindow::BucketOf(int64_t r, int64_t i) const {
  return in_.buckets[(plane_ * in_.rounds + r) * in_.seq_len + i];
}

bool ReferenceWindow::Reads(int64_t r, int64_t i, int64_t j) const {
  const int64_t ahead = ChunkOf(r, i) - ChunkOf(r, j);
  const bool kept = in_.kept == nullptr ||
                    in_.kept[plane_ / in_.heads * in_.seq_len + j] != 0;
  return (ahead == 0 || ahead == 1) && kept &&
         (!in_.causal || j <= i + in_.causal_offset) &&
         (!in_.same_bucket || BucketOf(r, i) == BucketOf(r, j));
}

double ReferenceWindow::Bias(int64_t round, int64_t i, int64_t j) const {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  if (!Reads(round, i, j)) return kNone;
  if (in_.masked && i == j) {
    // If counted, the rounds share one softmax; else each has its own.
    for (int64_t r = 0; r < in_.rounds; ++r) {
      if (!in_.counted && r != round) continue;
      for (int64_t other = 0; other < in_.seq_len; ++other) {
        if (other != i && Reads(r, i, other)) return kNone;
      }
    }
  }
  if (!in_.counted) return 0.0;
  int64_t rounds = 0;
  for (int64_t r = 0; r < in_.rounds; ++r) rounds += Reads(r, i, j);
  return -std::log(static_cast<double>(rounds));
}

std::vector<int64_t> ReferenceSort(const std::vector<int32_t>& buckets,
                                   const std::vector<bool>& kept) {
  std::vector<int64_t> order(buckets.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::tuple(!kept[a], kept[a] ? buckets[a] : 0, a) <
           std::tuple(!kept[b], kept[b] ? buckets[b] : 0, b);
  });
  return order;
}

}  // namespace tarn
