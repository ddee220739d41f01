// Sessions of the C++ owner (tarn.hpp), as a program outside the tree would use
// them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "capi/test_models.h"
#include "tarn/tarn.hpp"

namespace {

class OwnerSession : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    root_ = std::filesystem::path(testing::TempDir()) /
            ("tarn_owner_session_" + std::to_string(getpid()));
    tarn_test::WriteModels(root_);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(root_); }
  static tarn::Model Open(const std::string& name) {
    return tarn::Model::Open(root_ / name);
  }

  static inline std::filesystem::path root_;
};

TEST_F(OwnerSession, DraftsOfTheModelsHeadDoNotChangeAText) {
  const tarn::Model model = Open("mtp");
  tarn::GenerateOptions options;
  options.max_tokens = 60;
  options.sampler.seed = 4;
  options.stop_tokens = std::vector<std::int32_t>();
  tarn::Session plain(model), drafted(model);
  drafted.SpeculateMtp(4);
  for (tarn::Session* session : {&plain, &drafted}) {
    session->Begin(model.EncodePrompt("prompt"), options);
  }
  EXPECT_EQ(plain.Rest(), drafted.Rest());
  EXPECT_EQ(plain.tokens(), drafted.tokens());
  EXPECT_GT(drafted.draft_counts().first, 0u);
  tarn::Session other(Open("full"));
  EXPECT_THROW(other.SpeculateMtp(), tarn::Error);
}

TEST_F(OwnerSession, WritesWhatGenerateWrites) {
  const tarn::Model model = Open("full");
  tarn::GenerateOptions options;
  options.max_tokens = 30;
  options.sampler.seed = 4;
  options.stop_tokens = std::vector<std::int32_t>();
  tarn::Session session(model);
  session.Begin(model.EncodePrompt("prompt"), options);
  EXPECT_EQ(session.pending(), model.EncodePrompt("prompt"));
  EXPECT_EQ(session.Rest(), model.Generate("prompt", options));
  EXPECT_EQ(session.position(), 36u);
  EXPECT_EQ(session.Next().end, TARN_END_BUDGET);
  tarn::State state(model);
  state.Prefill(session.tokens());
  EXPECT_EQ(session.logits(), state.last_logits());
  EXPECT_EQ(session.state_bytes(), state.bytes());
}

TEST_F(OwnerSession, IsAValue) {
  static_assert(!std::is_copy_constructible_v<tarn::Session>);
  static_assert(std::is_nothrow_move_constructible_v<tarn::Session>);
  tarn::Session session(Open("linear"));  // keeps the model alive
  session.Append({1, 2, 3});
  session.Mark("three");
  tarn::Session fork = session.Fork();
  EXPECT_TRUE(fork == session);
  fork.Append({4});
  EXPECT_TRUE(fork != session);
  EXPECT_EQ(fork.RollBackTo("three"), 0u);
  EXPECT_TRUE(fork == session);
  EXPECT_EQ(fork.RollBack(2), 2u);
  EXPECT_EQ(fork.tokens(), (std::vector<std::int32_t>{1, 2}));
  EXPECT_FALSE(fork.Unmark("three"));  // dropped on the way back
  EXPECT_TRUE(session.Unmark("three"));
  session = std::move(fork);
  EXPECT_EQ(session.position(), 2u);
  session.Begin({}, {});
  EXPECT_EQ(session.Fork().Rest(), session.Fork().Rest());
  EXPECT_NE(session.Fork(1).Rest(), session.Fork(2).Rest());
  EXPECT_THROW(session.RollBack(9), tarn::Error);
  EXPECT_THROW(session.Append({-1}), tarn::Error);
}

TEST_F(OwnerSession, ParksAndContinues) {
  const tarn::Model model = Open("linear");
  tarn::GenerateOptions options;
  options.grammar_kind = TARN_GRAMMAR_REGEX;
  options.grammar = "[xyz]{6}";
  tarn::Session session(model, {.snapshot_bytes = 0, .every_token = 0});
  session.Begin({5, 6, 7}, options);
  std::string text = session.Next().text;
  session.Save(root_ / "parked");
  tarn::Session loaded = tarn::Session::Load(model, root_ / "parked");
  EXPECT_TRUE(loaded == session);
  text += loaded.Rest();
  EXPECT_EQ(text.size(), 6u);
  EXPECT_EQ(text.find_first_not_of("xyz"), std::string::npos);
  EXPECT_THROW(tarn::Session::Load(model, root_ / "none"), tarn::Error);
}

TEST_F(OwnerSession, ReadsAPrefixOnce) {
  const tarn::Model model = Open("full");
  tarn::PrefixCache cache(model, 1 << 20);
  tarn::Session session(model), other(model);
  session.Append({1, 2, 3});
  cache.Insert(session);
  EXPECT_GT(cache.bytes(), 0u);
  EXPECT_EQ(cache.Restore({1, 2, 3, 4}, other), 3u);
  EXPECT_TRUE(other == session);
  EXPECT_EQ(cache.Restore({1, 2, 3, 4}, other, "elsewhere"), 0u);
}

}  // namespace
