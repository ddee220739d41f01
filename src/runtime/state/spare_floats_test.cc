// Memory of states that ended, kept for those that begin.
#include "runtime/state/spare_floats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/state/shared_floats.h"

namespace tarn::testing {
namespace {

using Block = AlignedBuffer<float>;
constexpr int64_t kSize = SpareFloats::kLeastFloats + 48;

TEST(SpareFloats, NothingIsKeptWithoutAnAllowance) {
  { const SharedFloats block(kSize); }
  EXPECT_EQ(0, SpareFloats::bytes());
}

TEST(SpareFloats, TheNextBlockOfTheSizeGetsTheMemoryOfAnEarlierOne) {
  const int64_t bytes = kSize * static_cast<int64_t>(sizeof(float));
  const SpareFloats::Allowance allowance(2 * bytes);
  const float* was = nullptr;
  {
    SharedFloats block(kSize);
    std::fill_n(block.data(), kSize, 7.0f);
    was = block.data();
  }
  EXPECT_EQ(bytes, SpareFloats::bytes());
  const Block other =
      SpareFloats::Take(kSize + 16, Block::kZeros);  // of another size
  EXPECT_EQ(bytes, SpareFloats::bytes());
  SharedFloats next(kSize);
  EXPECT_EQ(was, next.data());
  EXPECT_EQ(0, SpareFloats::bytes());
  EXPECT_TRUE(std::all_of(next.data(), next.data() + kSize,
                          [](float x) { return x == 0.0f; }));
}

TEST(SpareFloats, AllowancesAreTheLimit) {
  const int64_t bytes = kSize * static_cast<int64_t>(sizeof(float));
  {
    const SpareFloats::Allowance first(bytes);
    {
      const SpareFloats::Allowance second(bytes + bytes / 2);
      { const SharedFloats a(kSize), b(kSize), c(kSize); }
      EXPECT_EQ(2 * bytes, SpareFloats::bytes());
    }
    EXPECT_EQ(bytes, SpareFloats::bytes());
    { const SharedFloats small(100); }
    EXPECT_EQ(bytes, SpareFloats::bytes());
    SpareFloats::Clear();
    EXPECT_EQ(0, SpareFloats::bytes());
    { const SharedFloats a(kSize); }
    EXPECT_EQ(bytes, SpareFloats::bytes());
  }
  EXPECT_EQ(0, SpareFloats::bytes());
}

TEST(SpareFloats, ThreadsNeverShareABlock) {
  const SpareFloats::Allowance allowance(int64_t{64} << 20);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        SharedFloats block(kSize);
        const float mine = static_cast<float>(t + 1);
        for (int64_t at = 0; at < kSize; at += 1024) {
          wrong[t] += block.data()[at] != 0.0f;
          block.data()[at] = mine;
        }
        for (int64_t at = 0; at < kSize; at += 1024) {
          wrong[t] += block.data()[at] != mine;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::vector<int>(4), wrong);
}

TEST(FloatCopies, PiecesAreTheWholeAndHoldTheirSource) {
  for (const int64_t size :
       {int64_t{1}, int64_t{1} << 18, (int64_t{3} << 18) + 5}) {
    SharedFloats a(size), spare;
    for (int64_t i = 0; i < size; ++i) {
      a.data()[i] = static_cast<float>(i % 1000);
    }
    const std::vector<float> wanted(a.data(), a.data() + size);
    FloatCopies copies;
    {
      const SharedFloats other = a;
      a.Own(spare, copies);  // and then the other is gone
    }
    EXPECT_TRUE(a.own());
    for (int64_t i = copies.pieces() - 1; i >= 0; --i) copies.Copy(i);
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), a.data()));
  }
  SharedFloats alone(8), spare;
  FloatCopies none;
  alone.Own(spare, none);
  EXPECT_EQ(0, none.pieces());
}

}  // namespace
}  // namespace tarn::testing
