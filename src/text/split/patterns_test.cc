#include "text/split/patterns.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/rng.h"

namespace tarn {
namespace {

TEST(SplitPatterns, AreFoundByTheirText) {
  ASSERT_FALSE(SplitPatterns().empty());
  std::set<std::string_view> patterns, names;
  for (const SplitPattern& row : SplitPatterns()) {
    EXPECT_EQ(&row, FindSplitPattern(row.pattern));
    EXPECT_TRUE(patterns.insert(row.pattern).second);
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_NE(SplitPatternNames().find(row.name), std::string::npos);
    const std::string longer = std::string(row.pattern) + " ";
    EXPECT_EQ(nullptr, FindSplitPattern(longer));
    EXPECT_EQ(nullptr, FindSplitPattern(row.pattern.substr(1)));
  }
  EXPECT_EQ(nullptr, FindSplitPattern(""));
  EXPECT_STREQ("GPT-2's pattern", Gpt2Split().name);
}

// What every scanner promises: pieces of at least one byte within the text.
TEST(SplitPatterns, ScannersTileAnyBytes) {
  Rng rng(5);
  for (const SplitPattern& row : SplitPatterns()) {
    for (int i = 0; i < 300; ++i) {
      std::string text(rng.Below(40), '\0');
      for (char& c : text) {
        c = static_cast<char>(rng.Below(2) == 0 ? rng.Below(256)
                                                : " \n'a1."[rng.Below(6)]);
      }
      for (std::string_view rest = text; !rest.empty();) {
        const size_t bytes = row.first_piece_bytes(rest);
        ASSERT_GE(bytes, 1u);
        ASSERT_LE(bytes, rest.size());
        rest.remove_prefix(bytes);
      }
    }
  }
}

}  // namespace
}  // namespace tarn
