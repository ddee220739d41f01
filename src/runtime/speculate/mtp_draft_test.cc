// Guesses of the extra prediction head against its rows over the whole text at
// once, whatever a session did before.
#include "runtime/speculate/mtp_draft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/rng.h"
#include "runtime/session/session.h"
#include "runtime/session/test_session_models.h"
#include "runtime/speculate/drafts.h"

namespace tarn::testing {
namespace {

using Tokens = std::vector<int32_t>;

// The model's rows after the final norm, [tokens, d_model].
std::vector<float> HiddenOf(const Model& model, const Tokens& tokens) {
  State state(model);
  std::vector<float> hidden(tokens.size() *
                            static_cast<size_t>(model.config().d_model));
  Job job = {.state = &state, .tokens = tokens, .hidden = hidden.data()};
  model.StepBatch({&job, 1});
  return hidden;
}

// Compares each guess of a MtpDraft with those of a head that reads all of the
// text.
class CheckedDraft final : public DraftSource {
 public:
  struct Counts {
    int64_t guesses = 0, empty = 0;
  };
  CheckedDraft(const LoadedModel& model, Counts& counts)
      : CheckedDraft(model, counts, std::make_unique<MtpDraft>(model)) {}

  Draft Guess(const DraftInput& input, std::span<int32_t> out) override {
    const Draft draft = inner_->Guess(input, out);
    ++(draft.tokens == 0 ? counts_.empty : counts_.guesses);
    if (draft.tokens == 0) return draft;
    EXPECT_EQ(out.size(), draft.tokens);
    Tokens text(input.read.begin(), input.read.end());
    text.insert(text.end(), input.pending.begin(), input.pending.end());
    const MtpHead& head = MtpHead::Of(model_.model);
    const auto width = static_cast<size_t>(head.d_model());
    Tokens before(text.begin(), text.end() - 1);
    std::vector<float> hidden = HiddenOf(model_.model, before), row(width);
    std::vector<float> logits(static_cast<size_t>(head.n_outputs()));
    Tokens next(text.begin() + 1, text.end());
    for (size_t i = 0; i < out.size(); ++i) {
      SequenceState state = head.NewState();
      head.Run(state, next, hidden.data(), logits.data(), row.data());
      const int32_t wanted = input.text.Guess(logits, text.size(), text);
      EXPECT_EQ(wanted, out[i]) << i << " after " << text.size();
      text.push_back(wanted);
      next.push_back(wanted);
      hidden.insert(hidden.end(), row.begin(), row.end());
    }
    EXPECT_TRUE(std::equal(logits.begin(), logits.end(),
                           inner_->logits().begin(), inner_->logits().end()));
    return draft;
  }
  bool reads_hidden() const override { return inner_->reads_hidden(); }
  void Read(int64_t position, std::span<const int32_t> tokens,
            const float* hidden) noexcept override {
    inner_->Read(position, tokens, hidden);
  }
  void Forget(int64_t position) override { inner_->Forget(position); }
  std::unique_ptr<DraftSource> New() const override {
    return std::unique_ptr<DraftSource>(
        new CheckedDraft(model_, counts_, inner_->New()));
  }

 private:
  CheckedDraft(const LoadedModel& model, Counts& counts,
               std::unique_ptr<DraftSource> inner)
      : model_(model), counts_(counts), inner_(std::move(inner)) {}

  const LoadedModel& model_;
  Counts& counts_;
  std::unique_ptr<DraftSource> inner_;
};

class MtpDraftTest : public ::testing::TestWithParam<SessionVariant> {
 protected:
  void SetUp() override {
    config_ = SessionConfig(GetParam().layers);
    SessionVariant variant = GetParam();
    variant.mtp = true;
    model_.emplace(OpenSessionModel(folder_.path(), config_, variant));
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  std::optional<LoadedModel> model_;
};

TEST_P(MtpDraftTest, GuessesAreThoseOfAHeadThatReadsAllOfTheText) {
  Rng rng(11);
  const auto below = [&](int64_t most) {
    return static_cast<int64_t>(rng.Below(static_cast<uint64_t>(most)));
  };
  CheckedDraft::Counts counts;
  int64_t accepted = 0;
  for (int round = 0; round < 3; ++round) {
    Session session(*model_);
    session.Speculate(std::make_unique<CheckedDraft>(*model_, counts),
                      {.most = 1 + 3 * round, .adapts = false});
    for (int op = 0; op < 6; ++op) {
      SamplerOptions sampler;
      sampler.seed = rng.Next();
      sampler.temperature = below(2) == 0 ? 0.0 : 0.7;
      session.Begin(RandomTokens(config_, 1 + below(40), rng.Next()),
                    {.sampler = sampler}, 60);
      const auto draw = [](Session& one, int64_t most) {
        for (int64_t i = 0; i < most && !one.text()->ended(); ++i) {
          one.Consume();
          one.Draw();
        }
      };
      draw(session, 5 + below(30));
      if (HasFailure()) return;
      switch (below(4)) {
        case 0: {
          Session fork = session.Fork();
          draw(fork, 10);
          break;
        }
        case 1:
          session.RollBack(session.position() - below(5));
          if (session.text() != nullptr) draw(session, 10);
          break;
        case 2:
          session.Append(Tokens{1, 2, 3});
          break;
        default:
          session.Mark("here");
          draw(session, 8);
          session.RollBackTo("here");
          draw(session, 8);
      }
      if (HasFailure()) return;
    }
    accepted += session.speculation().accepted;
  }
  EXPECT_GT(counts.guesses, 100);
  EXPECT_LT(counts.empty, 10);
  EXPECT_GT(accepted, 0);
}

// Long prompts pass through the head in pieces, and old rows are given up.
TEST_P(MtpDraftTest, ALongPromptIsReadInPieces) {
  CheckedDraft::Counts counts;
  Session session(*model_);
  session.Speculate(std::make_unique<CheckedDraft>(*model_, counts),
                    {.most = 2, .adapts = false});
  session.Begin(RandomTokens(config_, 1300, 3), {}, 20);
  while (!session.text()->ended()) {
    session.Consume();
    session.Draw();
  }
  EXPECT_GT(counts.guesses, 5);
}

// Far back, the row whose hidden state is no longer known is left out, and
// where a session begins to speculate late, all those before.
TEST_P(MtpDraftTest, RowsThatAreNotKnownAreLeftOut) {
  Session session(*model_);
  session.Append(RandomTokens(config_, 30, 3));
  session.Speculate(std::make_unique<MtpDraft>(*model_),
                    {.most = 2, .adapts = false});
  session.Append(RandomTokens(config_, 1000, 4));
  for (const int64_t to : {900, 400, 35, 20, 0}) {
    session.RollBack(to);
    const int64_t before = session.speculation().drafts;
    session.Begin(Tokens{5, 6, 7}, {.sampler = {.temperature = 0}}, 30);
    while (!session.text()->ended()) {
      session.Consume();
      session.Draw();
    }
    EXPECT_GT(session.speculation().drafts, before) << to;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MtpDraftTest,
    ::testing::Values(SessionVariant{"Full", "full"},
                      SessionVariant{"Hybrid", "gdn,full:key_heads=1"},
                      SessionVariant{"LastIsRecurrent", "full,gdn,mamba2"},
                      SessionVariant{"Int8", "gdn,full", "int8"},
                      SessionVariant{"Int8Cache", "gdn,full", "f32",
                                     CacheType::kInt8}),
    [](const auto& info) { return info.param.name; });

TEST(MtpHeadTest, IsRefusedWhereThereIsNone) {
  TemporaryFolder folder;
  const LoadedModel model =
      OpenSessionModel(folder.path(), SessionConfig("gdn,full"), {});
  EXPECT_THROW(MtpHead::Of(model.model), ArgumentError);
  EXPECT_THROW(MtpDraft{model}, ArgumentError);
  EXPECT_THROW(Drafts::Open(kMtpGuesses, model), ArgumentError);
}

TEST(MtpHeadTest, IsLoadedOnce) {
  TemporaryFolder folder;
  SessionVariant variant;
  variant.mtp = true;
  const LoadedModel model =
      OpenSessionModel(folder.path(), SessionConfig("gdn,full"), variant);
  const int64_t bytes = model.model.weight_bytes();
  const MtpHead& head = MtpHead::Of(model.model);
  EXPECT_EQ(&head, &MtpHead::Of(model.model));
  EXPECT_GT(head.weight_bytes(), 0);
  EXPECT_EQ(bytes, model.model.weight_bytes());
  const Drafts drafts = Drafts::Open(kMtpGuesses, model).Take();
  EXPECT_FALSE(drafts.none());
  EXPECT_NE(nullptr, drafts.Make());
}

// Of blocks and of steps as a team, in any split: bit for bit the row that the
// vector of a text is made of.
TEST(HiddenRows, AreThoseThatTheHeadReads) {
  for (const bool wide : {false, true}) {
    TemporaryFolder folder;
    // Wide layers run few rows as a team.
    ModelConfig config = wide ? WideConfig() : SessionConfig("gdn,full");
    config.tokenizer = TokenizerKind::kIds;
    const LoadedModel model = OpenSessionModel(folder.path(), config, {});
    const auto width = static_cast<size_t>(config.d_model);
    const Tokens tokens = RandomTokens(config, 40, 2);
    const std::vector<float> all = HiddenOf(model.model, tokens);
    for (const size_t piece : {1, 3, 13, 40}) {
      for (const bool logits : {false, true}) {
        State state(model.model);
        std::vector<float> hidden(all.size());
        std::vector<float> row(static_cast<size_t>(model.model.n_outputs()));
        for (size_t at = 0; at < tokens.size(); at += piece) {
          const size_t count = std::min(piece, tokens.size() - at);
          Job job = {.state = &state,
                     .tokens = std::span(tokens).subspan(at, count),
                     .logits = logits ? row.data() : nullptr,
                     .hidden = hidden.data() + at * width};
          model.model.StepBatch({&job, 1});
        }
        EXPECT_TRUE(all == hidden) << piece;
      }
    }
    for (const size_t last : {size_t{0}, size_t{7}, tokens.size() - 1}) {
      State state(model.model);
      PooledRows pooled(Pooling::kLast, config.d_model);
      Job job = {.state = &state,
                 .tokens = std::span(tokens).first(last + 1),
                 .pooled = &pooled};
      model.model.StepBatch({&job, 1});
      for (size_t i = 0; i < width; ++i) {
        EXPECT_EQ(static_cast<double>(all[last * width + i]), pooled.sums()[i]);
      }
    }
  }
}

}  // namespace
}  // namespace tarn::testing
