// Stop texts against a search in the whole text, for every way to cut it.
#include "runtime/session/stop_texts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/rng.h"

namespace tarn {
namespace {

using Texts = std::vector<std::string>;

// What is told of a text: all before the stop text that ends first, and of
// those that end there before the longest; by trying every place.
std::string Told(const std::string& text, const Texts& stops, bool& stopped) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest == 0) continue;
    stopped = true;
    return text.substr(0, end - longest);
  }
  stopped = false;
  return text;
}

// The longest end of `text` that is a beginning of a stop text.
size_t Reachable(std::string_view text, const Texts& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
      if (text.ends_with(stop.substr(0, n))) longest = std::max(longest, n);
    }
  }
  return longest;
}

TEST(StopTexts, AgreeWithASearchForEveryCut) {
  Rng rng(7);
  int stops_found = 0;
  for (int i = 0; i < 3000; ++i) {
    // Two letters, so that stop texts overlap themselves and each other.
    const auto random = [&rng](size_t count) {
      std::string text(count, 'a');
      for (char& c : text) c = rng.Below(2) == 0 ? 'a' : 'b';
      return text;
    };
    Texts stops;
    for (uint64_t n = rng.Below(4); n > 0; --n) {
      stops.push_back(random(1 + rng.Below(6)));
    }
    const std::string text = random(rng.Below(40));
    bool stopped = false;
    const std::string want = Told(text, stops, stopped);
    stops_found += stopped;
    StopTexts finder(stops);
    std::string told;
    bool found = false;
    for (size_t at = 0; at < text.size();) {
      const size_t piece = 1 + rng.Below(5);
      found = finder.Push(std::string_view(text).substr(at, piece), told);
      at = std::min(text.size(), at + piece);
      if (found) break;
      // Exactly what a stop text may reach is held back.
      const std::string_view so_far = std::string_view(text).substr(0, at);
      ASSERT_EQ(so_far.size() - Reachable(so_far, stops), told.size());
    }
    ASSERT_EQ(stopped, found);
    if (!found) told += finder.Take();
    ASSERT_EQ(want, told) << text;
  }
  EXPECT_GT(stops_found, 500);
}

TEST(StopTexts, AreFoundWithinCharacters) {
  StopTexts finder({"\xc3\xa9!"});  // a character of two bytes, then one
  std::string told;
  EXPECT_FALSE(finder.Push("caf\xc3", told));
  EXPECT_EQ("caf", told);
  EXPECT_FALSE(finder.Push("\xa9", told));
  EXPECT_FALSE(finder.Push("s\xc3\xa9", told));
  EXPECT_EQ("caf\xc3\xa9s", told);
  EXPECT_TRUE(finder.Push("!more", told));
  EXPECT_EQ("caf\xc3\xa9s", told);
  EXPECT_EQ("", finder.Take());
}

TEST(StopTexts, BeginAgain) {
  StopTexts finder({"ab"});
  std::string told;
  EXPECT_FALSE(finder.Push("a", told));
  EXPECT_EQ("a", finder.Take());
  EXPECT_FALSE(finder.Push("b", told));  // the "a" is of another stream
  EXPECT_EQ("b", told);
  EXPECT_TRUE(finder.Push("ab", told));
  EXPECT_FALSE(finder.Push("b", told));
  EXPECT_EQ("bb", told);
}

TEST(StopTexts, RefuseWhatCannotEndAText) {
  EXPECT_THROW(StopTexts({"a", ""}), ArgumentError);
  EXPECT_THROW(StopTexts({std::string(kMaxStopBytes + 1, 'a')}), ArgumentError);
  EXPECT_THROW(StopTexts(Texts(kMaxStopTexts + 1, "a")), ArgumentError);
  StopTexts most(Texts(kMaxStopTexts, std::string(kMaxStopBytes, 'a')));
  std::string told;
  EXPECT_TRUE(most.Push(std::string(kMaxStopBytes, 'a'), told));
  EXPECT_EQ("", told);
}

TEST(StopTexts, TheFoundOneIsTold) {
  StopTexts stops({"b", "ab", "x"});
  std::string out;
  EXPECT_EQ("", stops.found());
  EXPECT_FALSE(stops.Push("ca", out));
  EXPECT_TRUE(stops.Push("b", out));
  EXPECT_EQ("ab", stops.found());
  EXPECT_EQ("c", out);
  EXPECT_TRUE(stops.Push("x", out));
  EXPECT_EQ("x", stops.found());
}

}  // namespace
}  // namespace tarn
