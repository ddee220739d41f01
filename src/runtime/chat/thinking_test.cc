// Thinking and answer told apart, however the bytes are cut.
#include "runtime/chat/thinking.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tarn {
namespace {

using Split = std::pair<std::string, std::string>;  // thinking, text

Split SplitOf(const std::string& text, bool thinks, size_t piece) {
  Split split;
  const auto take = [&](AnswerPart part, std::string_view bytes) {
    EXPECT_FALSE(bytes.empty());
    (part == AnswerPart::kThinking ? split.first : split.second) += bytes;
  };
  ThinkingSplitter splitter(thinks);
  for (size_t at = 0; at < text.size(); at += piece) {
    splitter.Push(std::string_view(text).substr(at, piece), take);
  }
  splitter.Finish(take);
  return split;
}

TEST(Thinking, IsBetweenTheMarks) {
  for (const size_t piece : {1, 2, 5, 100}) {
    EXPECT_EQ(SplitOf("<think>\na b\n</think>\n\nc", false, piece),
              Split("a b\n", "c"));
    EXPECT_EQ(SplitOf("a</think>b", true, piece), Split("a", "b"));
    EXPECT_EQ(SplitOf(" <think></think>b", false, piece), Split("", "b"));
    EXPECT_EQ(SplitOf("<think>a</think>b<think>c</think>", false, piece),
              Split("a", "b<think>c</think>"));
  }
}

TEST(Thinking, WithoutMarksAllIsText) {
  for (const size_t piece : {1, 3, 100}) {
    EXPECT_EQ(SplitOf("", false, piece), Split("", ""));
    EXPECT_EQ(SplitOf("  a <think>b</think>", false, piece),
              Split("", "  a <think>b</think>"));
    EXPECT_EQ(SplitOf("<thi", false, piece), Split("", "<thi"));
    EXPECT_EQ(SplitOf("<thing>", false, piece), Split("", "<thing>"));
    EXPECT_EQ(SplitOf("a</think>b", false, piece), Split("", "a</think>b"));
  }
}

TEST(Thinking, CutWithinItStaysThinking) {
  EXPECT_EQ(SplitOf("<think>ab</thi", false, 2), Split("ab</thi", ""));
  EXPECT_EQ(SplitOf("ab", true, 1), Split("ab", ""));
}

}  // namespace
}  // namespace tarn
