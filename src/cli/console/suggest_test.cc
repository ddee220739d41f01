#include "cli/console/suggest.h"

#include <gtest/gtest.h>

namespace tarn::cli {
namespace {

TEST(Suggest, DistanceCountsEdits) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("sede", "seed"), 1u);  // neighbours swapped
  EXPECT_EQ(EditDistance("--top-k", "--top_k"), 1u);
}

TEST(Suggest, NamesTheNearestOrNothing) {
  const std::vector<std::string> known{"--seed", "--top-k", "--top-p",
                                       "--temperature"};
  EXPECT_EQ(DidYouMean("--sede", known), "; did you mean '--seed'?");
  EXPECT_EQ(DidYouMean("--temprature", known),
            "; did you mean '--temperature'?");
  EXPECT_EQ(DidYouMean("--completely-else", known), "");
  EXPECT_EQ(DidYouMean(std::string(10000, 'x'), known), "");
}

}  // namespace
}  // namespace tarn::cli
