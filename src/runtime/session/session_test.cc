// Sessions against plain replay: after any operations state and logits have the
// bits of a state that took the same tokens one by one.
#include "runtime/session/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/rng.h"
#include "reference/test_model.h"
#include "runtime/session/prefix_cache.h"
#include "runtime/session/session_file.h"
#include "runtime/session/test_session_models.h"

namespace tarn::testing {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kMostTokens = 700;

// A session and what it should be.
struct Pair {
  Session session;
  Tokens tokens;  // consumed
  State plain;    // after them, one by one
  std::map<std::string, int64_t> marks;

  // The text: options of its draws, and how many tokens there were before it.
  SamplerOptions sampler;
  bool draws = false;
};

class SessionTest : public ::testing::TestWithParam<SessionVariant> {
 protected:
  void SetUp() override {
    config_ = SessionConfig(GetParam().layers);
    model_.emplace(OpenSessionModel(folder_.path(), config_, GetParam()));
    logits_.resize(static_cast<size_t>(config_.vocab_size));
  }

  Pair NewPair() {
    return {Session(*model_, {.every_token = GetParam().every_token}),
            {},
            State(model_->model),
            {},
            {},
            false};
  }
  void StepPlain(Pair& pair, std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) {
      model_->model.Step(pair.plain, token, logits_.data());
      pair.tokens.push_back(token);
    }
  }
  void ReplayPlain(Pair& pair, int64_t position) {
    const Tokens tokens(pair.tokens.begin(), pair.tokens.begin() + position);
    pair.tokens.clear();
    pair.plain.Reset();
    StepPlain(pair, tokens);
    std::erase_if(pair.marks,
                  [&](const auto& mark) { return mark.second > position; });
  }
  // The value without its last logits, which not every call asks for.
  static void ExpectSame(const Pair& pair, const char* after) {
    ASSERT_EQ(pair.tokens.size(), pair.session.tokens().size()) << after;
    ASSERT_TRUE(std::equal(pair.tokens.begin(), pair.tokens.end(),
                           pair.session.tokens().begin()))
        << after;
    ASSERT_EQ(pair.plain.position(), pair.session.state().position()) << after;
    if (pair.session.logits().empty() || pair.plain.last_logits().empty()) {
      return;
    }
    ASSERT_TRUE(pair.plain == pair.session.state())
        << after << " at " << pair.plain.position();
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  std::optional<LoadedModel> model_;
  std::vector<float> logits_;
};

TEST_P(SessionTest, AnyOperationsEqualPlainReplay) {
  Rng rng(11);
  const auto below = [&](int64_t most) {
    return static_cast<int64_t>(rng.Below(static_cast<uint64_t>(most)));
  };
  std::vector<Pair> pairs;
  for (int i = 0; i < 3; ++i) pairs.push_back(NewPair());
  PrefixCache cache(int64_t{1} << 22);
  const char* const names[] = {"a", "b", "c"};
  std::map<std::string, int64_t> done;
  for (int op = 0; op < 430; ++op) {
    const size_t at = static_cast<size_t>(below(3));
    Pair& pair = pairs[at];
    const int64_t position = pair.session.position();
    const char* what = "";
    switch (below(10)) {
      case 0: {
        what = "append";
        if (position > kMostTokens) break;
        const Tokens more = RandomTokens(config_, below(140), rng.Next());
        Tokens all(pair.session.pending().begin(),
                   pair.session.pending().end());
        all.insert(all.end(), more.begin(), more.end());
        pair.session.Append(more);
        StepPlain(pair, all);
        pair.draws = false;
        break;
      }
      case 1: {
        what = "begin";
        if (position > kMostTokens) break;
        const Tokens prompt = RandomTokens(
            config_, position == 0 ? 1 + below(200) : below(90), rng.Next());
        pair.sampler.seed = rng.Next();
        pair.sampler.stream = 0;
        pair.sampler.temperature = below(2) == 0 ? 0.0 : 1.5;
        Tokens all(pair.session.pending().begin(),
                   pair.session.pending().end());
        all.insert(all.end(), prompt.begin(), prompt.end());
        pair.session.Begin(prompt, {.sampler = pair.sampler}, 50);
        pair.session.Consume();
        StepPlain(pair, all);
        pair.draws = true;
        break;
      }
      case 2: {
        what = "draw";
        // All that can, in batches, each with slices of its own.
        for (int i = 0; i < 12; ++i) {
          std::vector<Job> jobs;
          std::vector<Pair*> whose;
          for (Pair& other : pairs) {
            if (!other.draws || other.session.text()->ended()) continue;
            if (other.session.pending().empty()) {
              const int32_t token = other.session.Draw();
              ASSERT_EQ(Sample(other.plain.last_logits(), other.sampler,
                               other.tokens.size()),
                        token);
            }
            jobs.push_back(other.session.NextJob(1 + below(20)));
            whose.push_back(&other);
          }
          if (jobs.empty()) break;
          model_->model.StepBatch(jobs);
          for (size_t j = 0; j < jobs.size(); ++j) {
            const Tokens tokens(jobs[j].tokens.begin(), jobs[j].tokens.end());
            whose[j]->session.JobDone(jobs[j]);
            StepPlain(*whose[j], tokens);
            ExpectSame(*whose[j], what);
          }
        }
        break;
      }
      case 3:
      case 4: {
        what = "roll back";
        const int64_t to = below(2) == 0
                               ? below(position + 1)
                               : std::max<int64_t>(0, position - below(9));
        const int64_t replayed = pair.session.RollBack(to);
        ASSERT_LE(replayed, to);
        ReplayPlain(pair, to);
        pair.draws = pair.session.text() != nullptr;
        break;
      }
      case 5: {
        what = "mark";
        const std::string name = names[below(3)];
        pair.session.Mark(name);
        pair.marks[name] = position;
        break;
      }
      case 6: {
        what = "roll back to a mark";
        const std::string name = names[below(3)];
        if (pair.marks.count(name) == 0) {
          ASSERT_THROW(pair.session.RollBackTo(name), ArgumentError);
          break;
        }
        const int64_t to = pair.marks[name];
        ASSERT_EQ(to, pair.session.marks().at(name).position);
        // Only the initial state has no logits of its own.
        const int64_t replayed = pair.session.RollBackTo(name);
        ASSERT_LE(replayed, std::max<int64_t>(64, to));
        ReplayPlain(pair, to);
        pair.draws = pair.session.text() != nullptr;
        break;
      }
      case 7: {
        what = "fork";
        const size_t other = static_cast<size_t>(below(3));
        if (other == at) break;
        Pair& copy = pairs[other];
        copy.session = pair.session.Fork(uint64_t{5});
        ASSERT_TRUE(copy.session == pair.session);
        copy.tokens = pair.tokens;
        copy.plain = pair.plain.Clone();
        copy.marks = pair.marks;
        copy.sampler = pair.sampler;
        copy.sampler.stream = 5;
        copy.draws = pair.draws;
        break;
      }
      case 8: {
        what = "prefix cache";
        cache.Insert("", pair.session);
        Tokens wanted = pairs[static_cast<size_t>(below(3))].tokens;
        wanted.resize(static_cast<size_t>(
            below(static_cast<int64_t>(wanted.size()) + 1)));
        const Tokens other = RandomTokens(config_, below(40), rng.Next());
        wanted.insert(wanted.end(), other.begin(), other.end());
        Pair found = NewPair();
        const int64_t known = cache.Restore("", wanted, found.session);
        ASSERT_LE(known, static_cast<int64_t>(wanted.size()));
        StepPlain(found, std::span(wanted).first(static_cast<size_t>(known)));
        ExpectSame(found, "restore");
        const auto rest = std::span(wanted).subspan(static_cast<size_t>(known));
        found.session.Append(rest);
        StepPlain(found, rest);
        ExpectSame(found, "restore and append");
        pairs[at] = std::move(found);
        ASSERT_LE(cache.bytes(), int64_t{1} << 22);
        break;
      }
      case 9: {
        what = "park and restore";
        std::string bytes;
        StringSink sink(bytes);
        SaveSession(pair.session, sink);
        Session loaded =
            LoadSession(
                *model_,
                {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                "session", {.every_token = GetParam().every_token})
                .Take();
        ASSERT_TRUE(loaded == pair.session);
        // A file has only some of the snapshots, as they are.
        for (const Snapshot& s : loaded.snapshots()) {
          const auto& all = pair.session.snapshots();
          const auto same = std::find_if(
              all.begin(), all.end(),
              [&](const Snapshot& o) { return o.position == s.position; });
          if (same == all.end()) {
            ASSERT_EQ(loaded.position(), s.position);
            continue;
          }
          ASSERT_EQ(same->asked_for, s.asked_for);
          ASSERT_TRUE(SameFloats(same->mark->block.data(), s.mark->block.data(),
                                 s.mark->block.size()));
        }
        ASSERT_EQ(pair.session.marks().size(), loaded.marks().size());
        ASSERT_EQ(pair.session.text() == nullptr, loaded.text() == nullptr);
        // What the file does not hold is not needed: written again, it is the
        // same.
        std::string again;
        StringSink second(again);
        SaveSession(loaded, second);
        ASSERT_EQ(bytes, again);
        pair.session = std::move(loaded);
        break;
      }
    }
    ++done[what];
    for (const Pair& one : pairs) ExpectSame(one, what);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(9u, done.size());
  EXPECT_GT(cache.counts().hits, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, SessionTest,
                         ::testing::ValuesIn(SessionVariants()),
                         [](const auto& info) { return info.param.name; });

class PlainSession : public ::testing::Test {
 protected:
  PlainSession()
      : config_(SessionConfig("gdn,full")),
        model_(OpenSessionModel(folder_.path(), config_, {})) {}

  Tokens Some(int64_t count, uint64_t seed = 3) const {
    return RandomTokens(config_, count, seed);
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  LoadedModel model_;
};

TEST_F(PlainSession, GoingBackReadsFewTokensAgain) {
  Session session(model_);
  session.Append(Some(5000));
  // Each distance by itself: at most a quarter of it, or the grid's 64.
  for (const int64_t distance : {1, 30, 64, 200, 1000, 3000, 4990}) {
    Session fork = session.Fork();
    EXPECT_LE(fork.RollBack(5000 - distance),
              std::max<int64_t>(64, (distance + 64) / 4 + 64))
        << distance;
    EXPECT_EQ(5000 - distance, fork.position());
    // Where it stands now, its near past is kept as densely.
    const int64_t here = fork.position();
    if (here > 200) {
      EXPECT_LE(fork.RollBack(here - 100), 128) << distance;
    }
  }
}

TEST_F(PlainSession, NearRollbackReadsNothingAgain) {
  Session session(model_, {.every_token = 8});
  session.Append(Some(300));
  for (int64_t back = 1; back <= 7; ++back) {
    Session fork = session.Fork();
    EXPECT_EQ(0, fork.RollBack(300 - back)) << back;
  }
  // Again and again, without another owner of the states.
  Session alone(model_, {.every_token = 8});
  alone.Append(Some(300));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(0, alone.RollBack(295));
    alone.Append(Some(5, 4));
  }
  EXPECT_EQ(300, alone.position());
}

TEST_F(PlainSession, MarksCostAStateOnlyWhereTheSessionMovesOn) {
  Session session(model_);
  session.Append(Some(10));
  const int64_t before = session.snapshot_bytes();
  session.Mark("here");
  session.Mark("too");
  EXPECT_EQ(before, session.snapshot_bytes());
  session.Append(Some(1));
  EXPECT_GT(session.snapshot_bytes(), before);
  EXPECT_EQ(session.marks().at("here").state, session.marks().at("too").state);
  EXPECT_EQ(0, session.RollBackTo("too"));
  EXPECT_EQ(10, session.position());
  EXPECT_TRUE(session.Unmark("too"));
  EXPECT_FALSE(session.Unmark("too"));
  EXPECT_EQ(0, session.RollBackTo("here"));
  EXPECT_THROW(session.RollBackTo("too"), ArgumentError);
  for (const char* name : {"", "a b", "ä", "a/b"}) {
    EXPECT_THROW(session.Mark(name), ArgumentError) << name;
  }
  EXPECT_THROW(session.Mark(std::string(65, 'a')), ArgumentError);
  for (int i = 0; i < 63; ++i) session.Mark(StrCat("m", i));
  EXPECT_THROW(session.Mark("one-more"), ArgumentError);
  session.Mark("m5");  // moving one is no more
}

TEST_F(PlainSession, RefusesWithNothingChanged) {
  Session session(model_);
  EXPECT_THROW(session.Begin({}, {}, 5), ArgumentError);
  EXPECT_THROW(session.Draw(), ArgumentError);
  EXPECT_THROW(session.NextJob(1), ArgumentError);
  session.Begin(Some(5), {.sampler = {.temperature = 0}}, 5);
  session.Consume();
  session.Draw();
  const Session before = session.Fork();
  EXPECT_THROW(session.Append(Tokens{0, 61}), ArgumentError);
  EXPECT_THROW(session.Begin(Tokens{-1}, {}, 5), ArgumentError);
  EXPECT_THROW(session.Begin(Tokens{1}, {}, -1), ArgumentError);
  EXPECT_THROW(session.Begin(Tokens{1}, {.sampler = {.top_p = 2}}, 1),
               ArgumentError);
  EXPECT_THROW(session.RollBack(-1), ArgumentError);
  EXPECT_THROW(session.RollBack(6), ArgumentError);
  EXPECT_THROW(session.NextJob(0), ArgumentError);
  EXPECT_THROW(session.Draw(), ArgumentError);  // a token is pending
  EXPECT_TRUE(before == session);
  EXPECT_EQ(1u, session.pending().size());
}

TEST_F(PlainSession, AStoppedRollbackChangesNothing) {
  Session session(model_);
  session.Append(Some(4000));
  const Session before = session.Fork();
  const uint64_t hash = before.state().Hash();
  int asked = 0;
  EXPECT_THROW(session.RollBack(3, [&] { return ++asked > 0; }), Error);
  EXPECT_GT(asked, 0);
  EXPECT_TRUE(before == session);
  EXPECT_EQ(hash, session.state().Hash());
  EXPECT_EQ(3, session.RollBack(3));
}

TEST_F(PlainSession, ARolledBackTextContinuesAsBefore) {
  SequenceOptions options;
  options.sampler.seed = 9;
  options.stop_texts = {" 7 7"};
  Session session(model_);
  session.Begin(Some(20), options, 40);
  std::string told;
  const auto run = [&] {
    told.clear();
    while (!session.text()->ended()) {
      session.Consume();
      session.Draw();
      told += session.text()->text();
    }
  };
  run();
  const std::string whole = told;
  const Tokens tokens(session.tokens().begin(), session.tokens().end());
  const SequenceEnd end = session.text()->end();
  for (const int64_t at : {20, 21, 25, 33}) {
    session.RollBack(at);
    ASSERT_NE(nullptr, session.text());
    EXPECT_EQ(at - 20, session.text()->tokens());
    run();
    EXPECT_EQ(end, session.text()->end());
    EXPECT_TRUE(whole.ends_with(told)) << whole << " | " << told;
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(),
                           session.tokens().begin(), session.tokens().end()));
  }
  session.RollBack(19);
  EXPECT_EQ(nullptr, session.text());
}

TEST_F(PlainSession, OtherModelsAreRefused) {
  ModelConfig config = SmallConfigOf(Arch::kSeq2seq);
  config.tokenizer = TokenizerKind::kIds;
  TemporaryFolder folder;
  WriteModel(folder.path(), config, RandomTensors(config, 1));
  WriteFileAtomically(folder.path() + "/tokenizer.json",
                      Tokenizer::Ids(config.vocab_size).ToJson());
  const LoadedModel model =
      LoadedModel::Open(ModelPath(folder.path()), {.threads = 1}).Take();
  EXPECT_THROW(Session{model}, ArgumentError);
}

}  // namespace
}  // namespace tarn::testing
