// What a prefix cache finds, against a list of all sequences it was given.
#include "runtime/session/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/rng.h"
#include "reference/test_model.h"

namespace tarn::testing {
namespace {

using Tokens = std::vector<int32_t>;

class PrefixCacheTest : public ::testing::Test {
 protected:
  PrefixCacheTest() {
    config_ = SmallConfig();
    config_.tokenizer = TokenizerKind::kIds;
    config_.positions = Positions::kNone;
    SetLayers(config_, "linear,full");
    FinishConfig(config_);
    WriteModel(folder_.path(), config_, RandomTensors(config_, 1));
    WriteFileAtomically(folder_.path() + "/tokenizer.json",
                        Tokenizer::Ids(config_.vocab_size).ToJson());
    model_.emplace(
        LoadedModel::Open(ModelPath(folder_.path()), {.threads = 1}).Take());
  }
  Session Read(const Tokens& tokens) {
    Session session(*model_);
    session.Append(tokens);
    return session;
  }
  int64_t Known(PrefixCache& cache, const Tokens& tokens,
                const std::string& space = "") {
    Session session(*model_);
    return cache.Restore(space, tokens, session);
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  std::optional<LoadedModel> model_;
};

TEST_F(PrefixCacheTest, FindsTheLongestBeginningByDefinition) {
  Rng rng(2);
  PrefixCache cache(int64_t{1} << 30);
  // The beginnings that some session stood at, or keeps a state of.
  std::set<Tokens> ends, grid;
  std::vector<Tokens> known{{}};
  for (int i = 0; i < 300; ++i) {
    // Of few different tokens, so that many share their beginnings.
    Tokens tokens = known[rng.Below(known.size())];
    tokens.resize(rng.Below(tokens.size() + 1));
    const uint64_t more = rng.Below(30);
    for (uint64_t j = 0; j < more; ++j) {
      tokens.push_back(static_cast<int32_t>(rng.Below(2)));
    }
    size_t longest = 0;
    for (const Tokens& end : ends) {
      if (end.size() <= tokens.size() && end.size() > longest &&
          std::equal(end.begin(), end.end(), tokens.begin())) {
        longest = end.size();
      }
    }
    for (const Tokens& end : grid) {  // without logits: not all of the tokens
      if (end.size() < tokens.size() && end.size() > longest &&
          std::equal(end.begin(), end.end(), tokens.begin())) {
        longest = end.size();
      }
    }
    Session session(*model_);
    ASSERT_EQ(static_cast<int64_t>(longest),
              cache.Restore("", tokens, session));
    session.Append(std::span(tokens).subspan(longest));
    for (const Snapshot& s : session.snapshots()) {
      const Tokens at(tokens.begin(), tokens.begin() + s.position);
      (s.has_logits() ? ends : grid).insert(at);
    }
    if (!tokens.empty()) {
      ends.insert(tokens);
      known.push_back(tokens);
    }
    cache.Insert("", session);
    ASSERT_TRUE(session == Read(tokens));
  }
  EXPECT_GT(cache.counts().hits, 100u);
  EXPECT_EQ(300u, cache.counts().lookups);
}

TEST_F(PrefixCacheTest, ARepeatCostsNothingAndABranchIsKept) {
  PrefixCache cache(int64_t{1} << 30);
  const Tokens common = RandomTokens(config_, 333, 5);
  Tokens one = common, two = common;
  one.insert(one.end(), 200, 1);
  two.insert(two.end(), 200, 2);
  Session first = Read(one);
  cache.Insert("", first);
  EXPECT_EQ(533, Known(cache, one));
  Session second(*model_);
  const int64_t known = cache.Restore("", two, second);
  EXPECT_GE(known, 192);  // the grid's nearest
  EXPECT_LT(known, 333);
  second.Append(std::span(two).subspan(static_cast<size_t>(known)));
  cache.Insert("", second);
  Tokens three = common;
  three.push_back(3);
  EXPECT_EQ(333, Known(cache, three));  // where the two part
  EXPECT_EQ(533, Known(cache, two));
  EXPECT_TRUE(second == Read(two));
}

TEST_F(PrefixCacheTest, SpacesAreApart) {
  PrefixCache cache(int64_t{1} << 30);
  const Tokens tokens = RandomTokens(config_, 50, 5);
  Session session = Read(tokens);
  cache.Insert("one", session);
  EXPECT_EQ(50, Known(cache, tokens, "one"));
  EXPECT_EQ(0, Known(cache, tokens, "two"));
  EXPECT_EQ(0, Known(cache, tokens));
}

TEST_F(PrefixCacheTest, KeepsToItsMemory) {
  Session one = Read(RandomTokens(config_, 100, 1));
  PrefixCache measure(int64_t{1} << 30);
  measure.Insert("", one);
  const int64_t room = 3 * measure.bytes();
  PrefixCache cache(room);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Session session = Read(RandomTokens(config_, 100, seed));
    cache.Insert("", session);
    ASSERT_LE(cache.bytes(), room);
    // One that is asked for all the time stays.
    EXPECT_EQ(100, Known(cache, RandomTokens(config_, 100, 1))) << seed;
  }
  EXPECT_GT(cache.counts().evicted, 10u);
  EXPECT_EQ(0, Known(cache, RandomTokens(config_, 100, 3)));
  cache.Clear();
  EXPECT_EQ(0, cache.states());
  EXPECT_EQ(0, cache.bytes());
  PrefixCache none(0);
  none.Insert("", one);
  EXPECT_EQ(0, Known(none, RandomTokens(config_, 100, 1)));
  EXPECT_THROW(PrefixCache(-1), ArgumentError);
}

}  // namespace
}  // namespace tarn::testing
