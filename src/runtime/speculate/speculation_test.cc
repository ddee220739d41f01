// Sessions that read guesses ahead: whatever is guessed, tokens, states and
// logits are those of a state that takes the drawn tokens one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/rng.h"
#include "runtime/session/prefix_cache.h"
#include "runtime/session/session_file.h"
#include "runtime/session/test_session_models.h"
#include "runtime/speculate/model_draft.h"
#include "runtime/speculate/ngram_draft.h"

namespace tarn::testing {
namespace {

using Tokens = std::vector<int32_t>;

// The model's own draws, of which some are changed: guesses of every length are
// right at first and then wrong.
class SpoiltDraft final : public DraftSource {
 public:
  explicit SpoiltDraft(const LoadedModel& model, double spoilt)
      : model_(model), spoilt_(spoilt), right_(model, model) {}
  Draft Guess(const DraftInput& input, std::span<int32_t> out) override {
    Draft draft = right_.Guess(input, out);
    draft.tokens = 1 + static_cast<size_t>(rng_.Below(out.size()));
    for (size_t i = 0; i < draft.tokens; ++i) {
      if (rng_.Uniform() < spoilt_) out[i] = (out[i] + 1) % 61;
    }
    draft.kind = static_cast<int>(rng_.Below(Draft::kKinds));
    return draft;
  }
  void Forget(int64_t position) override { right_.Forget(position); }
  std::unique_ptr<DraftSource> New() const override {
    return std::make_unique<SpoiltDraft>(model_, spoilt_);
  }

 private:
  const LoadedModel& model_;
  double spoilt_;
  ModelDraft right_;
  Rng rng_{7};
};

class SpeculationTest : public ::testing::TestWithParam<SessionVariant> {
 protected:
  void SetUp() override {
    config_ = SessionConfig(GetParam().layers);
    model_.emplace(OpenSessionModel(folder_.path(), config_, GetParam()));
    logits_.resize(static_cast<size_t>(config_.vocab_size));
  }

  // The state that takes all tokens of a session one by one, pending or not.
  struct Plain {
    State state;
    Tokens tokens;
  };
  void Step(Plain& plain, int32_t token) {
    model_->model.Step(plain.state, token, logits_.data());
    plain.tokens.push_back(token);
  }
  void Replay(Plain& plain, int64_t position) {
    const Tokens tokens(plain.tokens.begin(), plain.tokens.begin() + position);
    plain.state.Reset();
    plain.tokens.clear();
    for (const int32_t token : tokens) Step(plain, token);
  }
  // Of a settled session; what is pending is not in `plain` yet.
  void ExpectSame(const Session& session, const Plain& plain) {
    ASSERT_TRUE(std::equal(plain.tokens.begin(), plain.tokens.end(),
                           session.tokens().begin(), session.tokens().end()));
    ASSERT_FALSE(session.reads_ahead());
    ASSERT_TRUE(session.state() == plain.state);
  }
  // Draws up to `most` tokens and compares each, and the logits it came from.
  void DrawSome(Session& session, Plain& plain, const SamplerOptions& sampler,
                int64_t most) {
    for (int64_t i = 0; i < most && !session.text()->ended(); ++i) {
      session.Consume();
      const int32_t want = Sample(plain.state.last_logits(), sampler,
                                  static_cast<uint64_t>(plain.tokens.size()));
      const int32_t got = session.Draw();
      ASSERT_EQ(want, got) << "at " << plain.tokens.size();
      ASSERT_TRUE(std::equal(session.drawn_from().begin(),
                             session.drawn_from().end(),
                             plain.state.last_logits().begin()));
      ahead_ += session.reads_ahead();
      Step(plain, got);
    }
  }
  // Settled, it has consumed all tokens but the one drawn last.
  void ExpectSettled(Session& session, Plain& plain) {
    session.Settle();
    ASSERT_LE(session.pending().size(), 1u);
    Replay(plain, static_cast<int64_t>(plain.tokens.size() -
                                       session.pending().size()));
    ExpectSame(session, plain);
    for (const int32_t token : session.pending()) Step(plain, token);
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  std::optional<LoadedModel> model_;
  std::vector<float> logits_;
  int64_t ahead_ = 0;  // draws that left the state ahead
};

TEST_P(SpeculationTest, AnyGuessesAndOperationsEqualPlainSteps) {
  for (const double spoilt : {0.0, 0.2, 1.0}) {
    Rng rng(static_cast<uint64_t>(spoilt * 10) + 3);
    const auto below = [&](int64_t most) {
      return static_cast<int64_t>(rng.Below(static_cast<uint64_t>(most)));
    };
    Session session(*model_);
    const SpeculationOptions options{.most = 2 + below(8), .adapts = false};
    session.Speculate(std::make_unique<SpoiltDraft>(*model_, spoilt), options);
    Plain plain{State(model_->model), {}};
    PrefixCache cache(int64_t{1} << 22);
    int64_t confirmed = 0;
    ahead_ = 0;
    for (int op = 0; op < 16; ++op) {
      const Tokens prompt = RandomTokens(config_, 1 + below(40), rng.Next());
      SamplerOptions sampler;
      sampler.seed = rng.Next();
      sampler.temperature = below(2) == 0 ? 0.0 : 1.2;
      session.Begin(prompt, {.sampler = sampler}, 1 + below(60));
      for (const int32_t token : prompt) Step(plain, token);
      DrawSome(session, plain, sampler, below(40));
      if (HasFatalFailure()) return;
      confirmed = std::max(confirmed, session.speculation().accepted);
      switch (below(7)) {
        case 0:
          ExpectSettled(session, plain);
          break;
        case 1: {  // a copy goes on as this one does
          Session fork = session.Fork();
          ASSERT_FALSE(fork.reads_ahead());
          Plain other{plain.state.Clone(), plain.tokens};
          DrawSome(fork, other, sampler, 20);
          if (HasFatalFailure()) return;
          ExpectSettled(fork, other);
          break;
        }
        case 2: {  // a file, written in the middle
          std::string bytes;
          StringSink sink(bytes);
          SaveSession(session, sink);
          session = LoadSession(*model_,
                                {reinterpret_cast<const uint8_t*>(bytes.data()),
                                 bytes.size()})
                        .Take();
          session.Speculate(std::make_unique<SpoiltDraft>(*model_, spoilt),
                            options);
          DrawSome(session, plain, sampler, 10);
          break;
        }
        case 3: {
          ExpectSettled(session, plain);
          if (HasFatalFailure()) return;
          const int64_t to = below(session.position() + 1);
          session.RollBack(to);
          Replay(plain, to);
          ExpectSame(session, plain);
          if (session.text() != nullptr && !session.text()->ended()) {
            DrawSome(session, plain, sampler, 10);
          }
          break;
        }
        case 4: {  // marked in the middle of a guess
          session.Mark("here");
          const int64_t here = session.position();
          DrawSome(session, plain, sampler, 5);
          if (HasFatalFailure()) return;
          session.RollBackTo("here");
          Replay(plain, here);
          ExpectSame(session, plain);
          break;
        }
        case 5:  // given up in the middle
          session.Append(Tokens{1, 2, 3});
          for (const int32_t token : {1, 2, 3}) Step(plain, token);
          ExpectSame(session, plain);
          break;
        default: {
          cache.Insert("", session);
          const int64_t known = cache.Restore("", plain.tokens, session);
          ASSERT_GE(known + 1, static_cast<int64_t>(plain.tokens.size()));
          Replay(plain, known);
          ExpectSame(session, plain);
        }
      }
      if (HasFatalFailure()) return;
      if (session.position() > 300) {
        session.RollBack(2);
        Replay(plain, 2);
      }
    }
    EXPECT_EQ(spoilt<1.0, confirmed> 20);
    EXPECT_TRUE(spoilt < 1.0 || confirmed == 0);
    EXPECT_TRUE(spoilt != 0.2 || ahead_ > 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SpeculationTest,
                         ::testing::ValuesIn(SessionVariants()),
                         [](const auto& info) { return info.param.name; });

class PlainSpeculation : public ::testing::Test {
 protected:
  PlainSpeculation()
      : config_(SessionConfig("gdn,full")),
        model_(OpenSessionModel(folder_.path(), config_, {})) {}

  // Calls of the model for a text of `count` greedy tokens, and the tokens.
  std::pair<int64_t, Tokens> Write(std::unique_ptr<DraftSource> source,
                                   int64_t count, SpeculationOptions options) {
    Session session(model_);
    session.Speculate(std::move(source), options);
    session.Begin(RandomTokens(config_, 20, 5), {.sampler = {.temperature = 0}},
                  count);
    session.Consume();
    int64_t calls = 0;
    Tokens tokens;
    while (!session.text()->ended()) {
      if (!session.pending().empty()) {
        session.Consume();
        ++calls;
      }
      tokens.push_back(session.Draw());
    }
    return {calls, tokens};
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  LoadedModel model_;
};

TEST_F(PlainSpeculation, RightGuessesSaveCallsOfTheModel) {
  const SpeculationOptions always{.most = 8, .adapts = false};
  const auto [plain, tokens] = Write(nullptr, 200, {});
  EXPECT_EQ(199, plain);
  const auto [guessed, same] =
      Write(std::make_unique<ModelDraft>(model_, model_), 200, always);
  EXPECT_EQ(tokens, same);
  // Nine tokens a call, but for those at which a state is kept.
  EXPECT_LE(guessed, 199 / 9 + 10);
  const auto [wrong, still] =
      Write(std::make_unique<SpoiltDraft>(model_, 1.0), 200, always);
  EXPECT_EQ(tokens, still);
  EXPECT_EQ(199, wrong);  // a wrong guess costs no call of its own
}

TEST_F(PlainSpeculation, ARepeatedTextIsGuessedFromItself) {
  Session session(model_);
  session.Speculate(std::make_unique<NgramDraft>(),
                    {.most = 8, .adapts = false});
  const Tokens prompt = RandomTokens(config_, 20, 5);
  session.Begin(prompt, {.sampler = {.temperature = 0}}, 400);
  while (!session.text()->ended()) {
    session.Consume();
    session.Draw();
  }
  // Greedy texts of a random model end in a circle.
  const SpeculationCounts counts = session.speculation();
  EXPECT_GT(counts.drafts, 0);
  EXPECT_GT(counts.accepted, 100);
}

TEST_F(PlainSpeculation, EndsAsWithoutGuesses) {
  const auto [calls, tokens] = Write(nullptr, 60, {});
  const int32_t stop = tokens[40];
  const auto first = std::find(tokens.begin(), tokens.end(), stop);
  for (const bool guesses : {false, true}) {
    Session session(model_);
    if (guesses) {
      session.Speculate(std::make_unique<ModelDraft>(model_, model_),
                        {.most = 9, .adapts = false});
    }
    session.Begin(RandomTokens(config_, 20, 5),
                  {.sampler = {.temperature = 0}, .stop_tokens = {stop}}, 60);
    int64_t drawn = 0;
    while (!session.text()->ended()) {
      session.Consume();
      session.Draw();
      ++drawn;
    }
    EXPECT_EQ(first - tokens.begin() + 1, drawn);
    EXPECT_EQ(SequenceEnd::kStopToken, session.text()->end());
    session.Settle();
    EXPECT_TRUE(session.pending().empty());
    EXPECT_EQ(20 + drawn - 1, session.position());
  }
}

TEST_F(PlainSpeculation, RefusesWhatItCannotBe) {
  Session session(model_);
  for (const int64_t most : {0, 65}) {
    EXPECT_THROW(
        session.Speculate(std::make_unique<NgramDraft>(), {.most = most}),
        ArgumentError);
  }
  TemporaryFolder folder;
  ModelConfig other = config_;
  other.vocab_size = 59;
  const LoadedModel draft = OpenSessionModel(folder.path(), other, {});
  EXPECT_THROW(ModelDraft(draft, model_), ArgumentError);
}

}  // namespace
}  // namespace tarn::testing
