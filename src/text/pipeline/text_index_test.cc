// Texts are found whatever their hashes are.
#include "text/pipeline/text_index.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/error.h"

namespace tarn {
namespace {

using Views = std::vector<std::string_view>;

TEST(TextIndex, FindsTextsThatShareASlot) {
  // 40 texts have 128 slots; all of these begin at the first.
  std::vector<std::string> texts;
  for (int i = 0; texts.size() < 40; ++i) {
    std::string text = StrCat("t", i);
    if (std::hash<std::string_view>()(text) % 128 == 0) texts.push_back(text);
  }
  const TextIndex index(Views(texts.begin(), texts.end()));
  for (size_t id = 0; id < texts.size(); ++id) {
    EXPECT_EQ(index.Find(texts[id]), static_cast<int32_t>(id));
    EXPECT_EQ(index.Find(texts[id] + "x"), -1);
  }
  EXPECT_EQ(index.twice(), (std::pair<int32_t, int32_t>{-1, -1}));
  for (size_t again : {size_t{0}, size_t{39}}) {
    std::vector<std::string> more = texts;
    more.back() = again == 39 ? more[38] : more[again];
    const TextIndex twice(Views(more.begin(), more.end()));
    EXPECT_EQ(twice.twice().second, 39);
    EXPECT_EQ(twice.Find(more.back()), twice.twice().first);
  }
}

TEST(TextIndex, LeavesEmptyTextsOut) {
  EXPECT_EQ(TextIndex().Find("a"), -1);
  EXPECT_EQ(TextIndex(Views{}).Find(""), -1);
  const TextIndex index(Views{"", "a", "", std::string_view("\0", 1)});
  EXPECT_EQ(index.Find(""), -1);
  EXPECT_EQ(index.Find("a"), 1);
  EXPECT_EQ(index.Find(std::string_view("\0", 1)), 3);
  EXPECT_EQ(index.twice().first, -1);
}

}  // namespace
}  // namespace tarn
