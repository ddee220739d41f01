// Memory that values share until one of them changes.
#include "runtime/state/shared_floats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace tarn::testing {
namespace {

SharedFloats Of(float value, int64_t size = 8) {
  SharedFloats made(size);
  std::fill_n(made.data(), size, value);
  return made;
}

TEST(SharedFloats, CopiesShareUntilOneOwns) {
  SharedFloats a = Of(3.0f), spare;
  const SharedFloats b = a;
  EXPECT_TRUE(a.Shares(b));
  EXPECT_FALSE(a.own());
  EXPECT_EQ(b.data(), a.data());
  a.Own(spare);
  EXPECT_TRUE(a.own() && b.own());
  EXPECT_NE(b.data(), a.data());
  a.data()[5] = 4.0f;
  EXPECT_EQ(3.0f, b.data()[5]);
  EXPECT_EQ(3.0f, a.data()[7]);
  const float* at = a.data();
  a.Own(spare);  // already
  EXPECT_EQ(at, a.data());
}

TEST(SharedFloats, SpareMemoryIsUsedWhereItFits) {
  SharedFloats a = Of(1.0f);
  const SharedFloats b = Of(2.0f);
  SharedFloats spare;
  const float* own = a.data();
  a.Share(b, spare);
  EXPECT_EQ(b.data(), a.data());
  EXPECT_EQ(own, spare.data());
  a.Own(spare);
  EXPECT_EQ(own, a.data());
  EXPECT_EQ(0, spare.size());
  EXPECT_EQ(2.0f, a.data()[0]);

  SharedFloats c = b, small(3);
  c.Own(small);
  EXPECT_EQ(8, c.size());
  EXPECT_EQ(3, small.size());
  SharedFloats used(8);
  const SharedFloats other = used;  // memory that others read is not spare
  SharedFloats d = b;
  d.OwnToOverwrite(used);
  EXPECT_NE(other.data(), d.data());
  EXPECT_TRUE(d.own());
}

TEST(SharedFloats, NothingIsAValueToo) {
  SharedFloats none, spare;
  const SharedFloats copy = none;
  EXPECT_TRUE(none.own() && copy.own());
  EXPECT_EQ(nullptr, none.data());
  EXPECT_EQ(0, none.bytes());
  none.Own(spare);
  none.Share(copy, spare);
  SharedFloats full = Of(1.0f);
  full.Share(copy, spare);
  EXPECT_EQ(0, full.size());
  EXPECT_EQ(8, spare.size());
}

// Under a thread sanitizer: what one thread read is not written by another
// before it is done.
TEST(SharedFloats, ThreadsChangeTheirCopies) {
  for (int round = 0; round < 50; ++round) {
    SharedFloats first = Of(1.0f, 1024);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([copy = first, i]() mutable {
        SharedFloats spare;
        copy.Own(spare);
        for (int64_t k = 0; k < copy.size(); ++k) {
          copy.data()[k] += static_cast<float>(i);
        }
        EXPECT_EQ(1.0f + static_cast<float>(i), copy.data()[1023]);
      });
    }
    SharedFloats spare;
    first.Own(spare);
    first.data()[0] = 9.0f;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(1.0f, first.data()[1]);
  }
}

}  // namespace
}  // namespace tarn::testing
