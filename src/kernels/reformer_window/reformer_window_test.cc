#include "kernels/reformer_window/reformer_window.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "kernels/reformer_window/reformer_window_ref.h"

namespace tarn {
namespace {

constexpr int64_t kBatch = 2, kHeads = 2, kPlanes = kBatch * kHeads;

// A call with random buckets, sorted by the kernel.
struct Problem {
  ReformerWindowInputs in;
  std::vector<int32_t> buckets, chunk_of;
  std::vector<uint8_t> kept;
  std::vector<int64_t> position, place;

  Problem(int64_t seq_len, int64_t chunk, int64_t rounds, bool ragged) {
    in.planes = kPlanes;
    in.heads = kHeads;
    in.seq_len = seq_len;
    in.rounds = rounds;
    in.chunk = chunk;
    Rng rng(seq_len * 10 + rounds);
    for (int64_t i = 0; i < kPlanes * rounds * seq_len; ++i) {
      buckets.push_back(static_cast<int32_t>(rng.Below(4)));
    }
    for (int64_t i = 0; i < kBatch * seq_len; ++i) {
      kept.push_back(rng.Below(4) != 0);
    }
    if (ragged) in.kept = kept.data();
    in.buckets = buckets.data();
    position.assign(buckets.size(), -99);
    place.assign(buckets.size(), -99);
    SerialExecutor executor;
    ReformerSort(in.buckets, in.kept, kBatch, kHeads * rounds, seq_len,
                 position.data(), place.data(), executor);
    for (int64_t plane = 0; plane < kPlanes; ++plane) {
      for (int64_t t = 0; t < seq_len; ++t) {
        for (int64_t r = 0; r < rounds; ++r) {
          chunk_of.push_back(static_cast<int32_t>(
              place[(plane * rounds + r) * seq_len + t] / chunk));
        }
      }
    }
    in.chunk_of = chunk_of.data();
  }

  const int64_t* Order(int64_t plane, int64_t round) const {
    return position.data() + (plane * in.rounds + round) * in.seq_len;
  }
  // own [P, C, s] and keys [P, C, W] of a round.
  std::pair<std::vector<int64_t>, std::vector<int64_t>> Places(
      int64_t round) const {
    std::vector<int64_t> own, keys;
    for (int64_t plane = 0; plane < in.planes; ++plane) {
      const auto at = [&](int64_t p) {
        return p >= 0 && p < in.seq_len ? Order(plane, round)[p] : -1;
      };
      for (int64_t c = 0; c < in.chunks(); ++c) {
        const int64_t first = c * in.chunk;
        for (int64_t a = 0; a < in.chunk; ++a) own.push_back(at(first + a));
        for (int64_t w = in.width(); w > 0; --w) {
          keys.push_back(at(first + in.chunk - w));
        }
      }
    }
    return {own, keys};
  }
  ReferenceWindow Reference(int64_t plane) const {
    std::vector<std::vector<int64_t>> orders;
    for (int64_t r = 0; r < in.rounds; ++r) {
      orders.emplace_back(Order(plane, r), Order(plane, r) + in.seq_len);
    }
    return ReferenceWindow(in, plane, orders);
  }
};

void Check(const Problem& problem, bool allow_all) {
  const ReformerWindowInputs& in = problem.in;
  SerialExecutor executor;
  std::vector<uint8_t> others(in.planes * in.seq_len);
  std::vector<uint8_t> mask(in.planes * in.chunks() * in.chunk * in.width(), 1);
  const uint8_t* given = allow_all ? mask.data() : nullptr;
  for (int64_t round = 0; round < in.rounds; ++round) {
    const auto [own, keys] = problem.Places(round);
    ReformerReadsOthers(in, round, own.data(), keys.data(), given,
                        others.data(), executor);
  }
  for (int64_t round = 0; round < in.rounds; ++round) {
    const auto [own, keys] = problem.Places(round);
    std::vector<double> bias(mask.size(), std::nan(""));
    ReformerBias(in, round, own.data(), keys.data(), given,
                 in.counted ? others.data() : nullptr, bias.data(), executor);
    for (int64_t row = 0; row < in.planes * in.chunks() * in.chunk; ++row) {
      const int64_t chunk = row / in.chunk, i = own[row];
      const ReferenceWindow wanted = problem.Reference(chunk / in.chunks());
      for (int64_t w = 0; w < in.width(); ++w) {
        const int64_t j = keys[chunk * in.width() + w];
        const double expected =
            i < 0 || j < 0 ? -INFINITY : wanted.Bias(round, i, j);
        ASSERT_DOUBLE_EQ(bias[row * in.width() + w], expected)
            << "round " << round << ", " << i << " reads " << j;
      }
    }
  }
}

TEST(ReformerWindow, FollowsItsDefinition) {
  for (const auto& [seq_len, chunk] :
       {std::pair(1, 1), std::pair(7, 2), std::pair(9, 9), std::pair(12, 4)}) {
    for (const bool ragged : {false, true}) {
      Problem problem(seq_len, chunk, 3, ragged);
      for (int options = 0; options < 16; ++options) {
        problem.in.causal = (options & 1) != 0;
        problem.in.causal_offset = options & 1;
        problem.in.same_bucket = (options & 2) != 0;
        problem.in.masked = (options & 4) != 0;
        problem.in.counted = (options & 8) != 0;
        Check(problem, options % 3 == 0);
      }
    }
  }
}

TEST(ReformerSort, OrdersByBucketAndPosition) {
  for (const bool ragged : {false, true}) {
    const Problem problem(11, 3, 2, ragged);
    for (int64_t task = 0; task < kPlanes * 2; ++task) {
      const int32_t* bucket = problem.buckets.data() + task * 11;
      std::vector<bool> kept(11, true);
      for (int64_t t = 0; ragged && t < 11; ++t) {
        kept[t] = problem.kept[task / (kHeads * 2) * 11 + t] != 0;
      }
      const std::vector<int64_t> wanted =
          ReferenceSort({bucket, bucket + 11}, kept);
      for (int64_t p = 0; p < 11; ++p) {
        EXPECT_EQ(problem.position[task * 11 + p], wanted[p]);
        EXPECT_EQ(problem.place[task * 11 + wanted[p]], p);
      }
    }
  }
}

TEST(ReformerSort, RefusesBucketsOutOfRange) {
  SerialExecutor executor;
  std::vector<int64_t> position(3, -99), place(3, -99);
  for (const int32_t bad : {-1, kReformerBuckets}) {
    const std::vector<int32_t> buckets = {0, bad, 1};
    EXPECT_THROW(ReformerSort(buckets.data(), nullptr, 1, 1, 3, position.data(),
                              place.data(), executor),
                 ArgumentError);
    EXPECT_EQ(position, std::vector<int64_t>(3, -99));
  }
}

}  // namespace
}  // namespace tarn
