// Many texts at once against each by itself, and what is computed for them.
#include "serve/schedule/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reference/test_model.h"
#include "runtime/generate/generate.h"
#include "runtime/speculate/model_draft.h"
#include "runtime/speculate/mtp_draft.h"
#include "runtime/speculate/ngram_draft.h"

namespace tarn::serve {
namespace {

using namespace tarn::testing;
using Tokens = std::vector<int32_t>;

// What a request was told.
struct Told {
  std::vector<int32_t> prompt;
  std::vector<Tokens> tokens;
  std::vector<std::string> texts;
  std::vector<ChoiceEnd> ends;
  std::vector<float> vectors;
  TextUsage usage;
  std::string error;
};

// A token of a prompt that the sink throws at.
constexpr int32_t kRefused = 60;

class CollectingSink final : public TextSink {
 public:
  // on_token: called with the number of tokens told so far.
  explicit CollectingSink(std::promise<Told> promise,
                          std::function<void(int64_t)> on_token = {})
      : promise_(std::move(promise)), on_token_(std::move(on_token)) {}
  void Token(const TokenEvent& token) override {
    const auto choice = static_cast<size_t>(token.choice);
    if (told_.tokens.size() <= choice) {
      told_.tokens.resize(choice + 1);
      told_.texts.resize(choice + 1);
    }
    told_.tokens[choice].push_back(token.id);
    told_.texts[choice] += token.text;
    if (on_token_) on_token_(++count_);
  }
  void PromptToken(const TokenEvent& token) override {
    if (token.id == kRefused) throw ArgumentError("token", "another", "this");
    told_.prompt.push_back(token.id);
  }
  void Vectors(const std::vector<float>& vectors) override {
    told_.vectors = vectors;
  }
  void End(const ChoiceEnd& end) override { told_.ends.push_back(end); }
  void Done(const TextUsage& usage) override {
    told_.usage = usage;
    promise_.set_value(std::move(told_));
  }
  void Failed(const Error& error) override {
    told_.error = error.what();
    promise_.set_value(std::move(told_));
  }

 private:
  std::promise<Told> promise_;
  std::function<void(int64_t)> on_token_;
  Told told_;
  int64_t count_ = 0;
};

class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest() {
    config_ = SmallConfig();
    config_.vocab_size = 61;
    config_.tokenizer = TokenizerKind::kIds;
    config_.positions = Positions::kNone;
    SetLayers(config_, "gdn,full");
    config_.d_value = config_.d_key;
    FinishConfig(config_);
    Tensors tensors = RandomTensors(config_, 1);
    tensors.merge(RandomTensors(MtpShapes(config_), 2));
    WriteModel(folder_.path(), config_, tensors);
    WriteFileAtomically(folder_.path() + "/tokenizer.json",
                        Tokenizer::Ids(config_.vocab_size).ToJson());
    model_.emplace(
        LoadedModel::Open(ModelPath(folder_.path()), {.threads = 2}).Take());
  }

  TextRequest Request(Tokens prompt, uint64_t seed, int64_t max_tokens) {
    TextRequest request;
    request.prompt = std::move(prompt);
    request.options.sampler.seed = seed;
    request.max_tokens = max_tokens;
    return request;
  }
  std::future<Told> Submit(Scheduler& scheduler, TextRequest request,
                           std::shared_ptr<Ticket>* ticket = nullptr,
                           std::function<void(int64_t)> on_token = {}) {
    std::promise<Told> promise;
    std::future<Told> told = promise.get_future();
    request.sink = std::make_unique<CollectingSink>(std::move(promise),
                                                    std::move(on_token));
    // Before the scheduler can call back.
    if (ticket != nullptr) *ticket = request.ticket;
    scheduler.Submit(std::move(request));
    return told;
  }
  // The text by itself, with the model's plain loop.
  Tokens Alone(const Tokens& prompt, const SequenceOptions& options,
               int64_t max_tokens) {
    State state(model_->model);
    GenerateOptions generate;
    generate.sampler = options.sampler;
    generate.stop_tokens = options.stop_tokens;
    generate.stop_texts = options.stop_texts;
    generate.max_tokens = max_tokens;
    Tokens tokens;
    Generate(model_->model, model_->tokenizer, state, prompt, generate,
             [&](const GeneratedToken& token) {
               tokens.push_back(token.id);
               return true;
             });
    return tokens;
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  std::optional<LoadedModel> model_;
  bool waits_ = false;  // the last token of a text, to be read
};

TEST_F(SchedulerTest, EachTextIsWhatItIsAlone) {
  Scheduler scheduler(*model_, {.slots = 7});
  std::vector<std::future<Told>> told;
  std::vector<TextRequest> requests;
  for (uint64_t i = 0; i < 24; ++i) {
    TextRequest request = Request(
        RandomTokens(config_, 1 + static_cast<int64_t>(i * 37 % 300), i), i,
        static_cast<int64_t>(i * 7 % 50));
    if (i % 3 == 0) request.options.stop_tokens = {5, 7};
    if (i % 4 == 1) request.options.stop_texts = {" 7"};
    request.choices = i % 5 == 0 ? 3 : 1;
    TextRequest copy = Request(request.prompt, i, request.max_tokens);
    copy.options = request.options;
    copy.choices = request.choices;
    told.push_back(Submit(scheduler, std::move(copy)));
    requests.push_back(std::move(request));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    TextRequest& request = requests[i];
    const Told got = told[i].get();
    ASSERT_EQ("", got.error);
    ASSERT_EQ(static_cast<size_t>(request.choices), got.ends.size());
    EXPECT_EQ(static_cast<int64_t>(request.prompt.size()),
              got.usage.prompt_tokens);
    EXPECT_EQ(got.usage.prompt_tokens,
              got.usage.cached_tokens + got.usage.prompt_computed);
    if (request.max_tokens == 0) {
      EXPECT_TRUE(got.tokens.empty());
      continue;
    }
    for (int64_t c = 0; c < request.choices; ++c) {
      request.options.sampler.stream = static_cast<uint64_t>(c);
      Tokens want = Alone(request.prompt, request.options, request.max_tokens);
      Tokens have = got.tokens[static_cast<size_t>(c)];
      // The loop does not tell the token that ends a text.
      if (!have.empty() && (have.back() == 5 || have.back() == 7) &&
          !request.options.stop_tokens.empty()) {
        have.pop_back();
      }
      EXPECT_EQ(want, have) << "request " << i << " choice " << c;
    }
  }
  const SchedulerCounts counts = scheduler.counts();
  EXPECT_EQ(24u, counts.requests);
  EXPECT_EQ(0u, counts.failed);
  EXPECT_GT(counts.step_rows, counts.steps);  // they shared steps
}

TEST_F(SchedulerTest, AConversationReadsNothingTwice) {
  Scheduler scheduler(*model_, {});
  Tokens conversation;
  uint64_t computed = 0;
  for (uint64_t turn = 0; turn < 20; ++turn) {
    const Tokens more = RandomTokens(config_, 15, turn);
    conversation.insert(conversation.end(), more.begin(), more.end());
    const Told told = Submit(scheduler, Request(conversation, turn, 10)).get();
    ASSERT_EQ("", told.error);
    // The last token of the answer before was drawn and not yet read.
    EXPECT_EQ(turn == 0 ? 15 : 16, told.usage.prompt_computed) << turn;
    EXPECT_EQ(static_cast<int64_t>(conversation.size()),
              told.usage.prompt_tokens);
    conversation.insert(conversation.end(), told.tokens[0].begin(),
                        told.tokens[0].end());
    computed += static_cast<uint64_t>(told.usage.prompt_computed);
  }
  EXPECT_EQ(computed, scheduler.counts().prompt_computed);
  // A repeat of all of it is not read at all.
  const Tokens prompt(conversation.begin(), conversation.end() - 10);
  EXPECT_EQ(
      0, Submit(scheduler, Request(prompt, 1, 3)).get().usage.prompt_computed);
}

TEST_F(SchedulerTest, GuessesChangeNoText) {
  for (const std::string source : {"ngram", "model", "mtp"}) {
    SCOPED_TRACE(source);
    SchedulerOptions options;
    options.drafts = [&]() -> std::unique_ptr<DraftSource> {
      if (source == "ngram") return std::make_unique<NgramDraft>();
      if (source == "mtp") return std::make_unique<MtpDraft>(*model_);
      return std::make_unique<ModelDraft>(*model_, *model_);
    };
    Scheduler scheduler(*model_, options);
    auto held = std::make_shared<HeldSession>();
    scheduler.Run([&] { held->session.emplace(*model_); });
    Tokens conversation;
    for (uint64_t turn = 0; turn < 6; ++turn) {
      const Tokens more = RandomTokens(config_, 15, turn);
      conversation.insert(conversation.end(), more.begin(), more.end());
      TextRequest request = Request(more, turn, 60);
      request.options.sampler.temperature = turn % 2 == 0 ? 0.0 : 0.8;
      request.options.stop_tokens = {static_cast<int32_t>(turn)};
      const SequenceOptions wanted = request.options;
      request.session = held;
      // At times another text is written beside it.
      std::future<Told> beside;
      if (turn % 3 == 2) beside = Submit(scheduler, Request(more, turn, 20));
      const Told told = Submit(scheduler, std::move(request)).get();
      ASSERT_EQ("", told.error);
      if (beside.valid()) beside.get();
      Tokens have = told.tokens[0];
      const bool stopped =
          !have.empty() && have.back() == static_cast<int32_t>(turn);
      if (stopped) have.pop_back();
      EXPECT_EQ(Alone(conversation, wanted, 60), have) << turn;
      // The token drawn last was not read; nothing else is read twice.
      EXPECT_EQ(turn == 0 || !waits_ ? 15 : 16, told.usage.prompt_computed);
      waits_ = !stopped;
      conversation.insert(conversation.end(), have.begin(), have.end());
    }
    const SchedulerCounts counts = scheduler.counts();
    EXPECT_LE(counts.accepted, counts.drafted);
  }
}

TEST_F(SchedulerTest, SpacesDoNotShareWhatTheyRead) {
  Scheduler scheduler(*model_, {});
  const Tokens prompt = RandomTokens(config_, 100, 1);
  for (const char* space : {"one", "two"}) {
    TextRequest request = Request(prompt, 1, 3);
    request.space = space;
    EXPECT_EQ(
        100, Submit(scheduler, std::move(request)).get().usage.prompt_computed);
  }
  TextRequest uncached = Request(prompt, 1, 3);
  uncached.space = "one";
  uncached.cache_prompt = false;
  EXPECT_EQ(100,
            Submit(scheduler, std::move(uncached)).get().usage.prompt_computed);
}

TEST_F(SchedulerTest, ACancelledRequestEndsAndLeavesOthersAlone) {
  Scheduler scheduler(*model_, {.slots = 2});
  const Tokens prompt = RandomTokens(config_, 80, 1);
  std::shared_ptr<Ticket> first;
  std::promise<void> begun;
  // It cancels itself after five tokens, from the scheduler's own thread.
  std::future<Told> cancelled =
      Submit(scheduler, Request(prompt, 1, 100000), &first, [&](int64_t count) {
        if (count == 1) begun.set_value();
        if (count == 5) first->Cancel();
      });
  begun.get_future().wait();
  std::future<Told> other =
      Submit(scheduler, Request(RandomTokens(config_, 30, 2), 2, 40));
  const Told told = cancelled.get();
  ASSERT_EQ(1u, told.ends.size());
  EXPECT_TRUE(told.ends[0].cancelled);
  EXPECT_EQ(5u, told.tokens[0].size());  // not one more
  EXPECT_EQ(5, told.usage.text_tokens);
  EXPECT_EQ(Alone(RandomTokens(config_, 30, 2), {.sampler = {.seed = 2}}, 40),
            other.get().tokens[0]);
  EXPECT_EQ(1u, scheduler.counts().cancelled);
}

TEST_F(SchedulerTest, AFullQueueRefusesAndForgets) {
  Scheduler scheduler(*model_, {.slots = 1, .queue = 2});
  std::shared_ptr<Ticket> first;
  std::promise<void> begun, go;
  std::shared_future<void> gone = go.get_future().share();
  std::future<Told> running =
      Submit(scheduler, Request(RandomTokens(config_, 5, 1), 1, 100000), &first,
             [&](int64_t count) {
               if (count != 1) return;
               begun.set_value();
               gone.wait();  // the scheduler stands still
             });
  begun.get_future().wait();
  std::vector<std::shared_ptr<Ticket>> tickets(2);
  std::vector<std::future<Told>> waiting;
  for (auto& ticket : tickets) {
    waiting.push_back(
        Submit(scheduler, Request(RandomTokens(config_, 5, 2), 1, 3), &ticket));
  }
  std::future<Told> dropped;
  EXPECT_THROW(Submit(scheduler, Request(RandomTokens(config_, 5, 3), 1, 3)),
               QueueFull);
  EXPECT_EQ(1u, scheduler.counts().rejected);
  EXPECT_EQ(2, scheduler.counts().waiting);
  tickets[0]->Cancel();
  first->Cancel();
  go.set_value();
  EXPECT_TRUE(running.get().ends[0].cancelled);
  EXPECT_TRUE(waiting[0].get().tokens.empty());
  EXPECT_EQ(3u, waiting[1].get().tokens[0].size());
}

TEST_F(SchedulerTest, BadRequestsAreRefusedBeforeTheyWait) {
  Scheduler scheduler(*model_, {.slots = 4});
  const auto refused = [&](const std::function<void(TextRequest&)>& change) {
    TextRequest request = Request(RandomTokens(config_, 5, 1), 1, 3);
    change(request);
    EXPECT_THROW(Submit(scheduler, std::move(request)), ArgumentError);
  };
  refused([](TextRequest& r) { r.prompt = {}; });
  refused([](TextRequest& r) { r.prompt = {61}; });
  refused([](TextRequest& r) { r.prompt = {-1}; });
  refused([](TextRequest& r) { r.max_tokens = -1; });
  refused([](TextRequest& r) { r.choices = 0; });
  refused([](TextRequest& r) {
    r.score_prompt = true;
    r.session = std::make_shared<HeldSession>();
  });
  refused([](TextRequest& r) { r.choices = 5; });
  refused([](TextRequest& r) { r.options.sampler.top_p = 0; });
  refused([](TextRequest& r) { r.options.stop_tokens = {61}; });
  refused([](TextRequest& r) { r.options.stop_texts = {""}; });
  EXPECT_EQ(0u, scheduler.counts().requests);
  for (const int64_t slots : {0, 257}) {
    EXPECT_THROW(Scheduler(*model_, {.slots = slots}), ArgumentError);
  }
  EXPECT_THROW(Scheduler(*model_, {.queue = -1}), ArgumentError);
  EXPECT_THROW(Scheduler(*model_, {.prompt_slice_ms = 0}), ArgumentError);
}

// A sink may throw at a token, such as one that the tokenizer does not have.
TEST_F(SchedulerTest, APromptIsToldAndWhatThrowsFailsAlone) {
  Scheduler scheduler(*model_, {});
  for (const bool refused : {false, true, false}) {
    TextRequest request = Request({1, 2, 3, refused ? kRefused : 4, 5}, 1, 3);
    request.score_prompt = true;
    const Told told = Submit(scheduler, std::move(request)).get();
    EXPECT_EQ(refused, !told.error.empty());
    EXPECT_EQ((refused ? std::vector<int32_t>{2, 3}
                       : std::vector<int32_t>{2, 3, 4, 5}),
              told.prompt);
  }
  EXPECT_EQ(1u, scheduler.counts().failed);
}

TEST_F(SchedulerTest, HeldSessionsContinueAndRest) {
  Scheduler scheduler(*model_, {});
  auto held = std::make_shared<HeldSession>();
  scheduler.Run([&] { held->session.emplace(*model_); });
  const Tokens prompt = RandomTokens(config_, 20, 1);
  const auto continued = [&](Tokens tokens, int64_t count) {
    TextRequest request = Request(std::move(tokens), 4, count);
    request.session = held;
    return request;
  };
  const Told one = Submit(scheduler, continued(prompt, 10)).get();
  const Told two = Submit(scheduler, continued({}, 10)).get();
  EXPECT_EQ(1, two.usage.prompt_computed);
  Tokens all = one.tokens[0];
  all.insert(all.end(), two.tokens[0].begin(), two.tokens[0].end());
  EXPECT_EQ(Alone(prompt, {.sampler = {.seed = 4}}, 20), all);

  // In use, it is not to be had by another request.
  std::shared_ptr<Ticket> ticket;
  std::future<Told> clash;
  TextRequest long_one = continued({1}, 100000);
  long_one.roll_back_when_cancelled = true;
  std::future<Told> busy =
      Submit(scheduler, std::move(long_one), &ticket, [&](int64_t count) {
        if (count == 1) clash = Submit(scheduler, continued({1}, 3));
        if (count == 8) ticket->Cancel();
      });
  EXPECT_TRUE(busy.get().ends[0].cancelled);
  EXPECT_EQ("session: want one that rests, got one in use", clash.get().error);
  int64_t position = 0;
  scheduler.Run([&] { position = held->session->position(); });
  EXPECT_EQ(39, position);  // where it was before, its last token not read
  EXPECT_THROW(scheduler.Run([] { throw ArgumentError("a", "b", "c"); }),
               ArgumentError);
}

TEST_F(SchedulerTest, AllCanBeCancelled) {
  Scheduler scheduler(*model_, {.slots = 1});
  std::promise<void> begun;
  std::future<Told> running =
      Submit(scheduler, Request(RandomTokens(config_, 5, 1), 1, 1 << 30),
             nullptr, [&](int64_t count) {
               if (count == 1) begun.set_value();
             });
  std::future<Told> waiting =
      Submit(scheduler, Request(RandomTokens(config_, 5, 1), 1, 3));
  begun.get_future().wait();
  scheduler.CancelAll();
  EXPECT_TRUE(running.get().ends[0].cancelled);
  EXPECT_TRUE(waiting.get().ends.empty());
  EXPECT_EQ(3u, Submit(scheduler, Request(RandomTokens(config_, 5, 1), 1, 3))
                    .get()
                    .tokens[0]
                    .size());
}

TEST_F(SchedulerTest, EndsWhatRunsWhenItEnds) {
  std::future<Told> running, waiting;
  {
    Scheduler scheduler(*model_, {.slots = 1});
    std::promise<void> begun;
    running =
        Submit(scheduler, Request(RandomTokens(config_, 5, 1), 1, 1 << 30),
               nullptr, [&](int64_t count) {
                 if (count == 1) begun.set_value();
               });
    begun.get_future().wait();
    waiting = Submit(scheduler, Request(RandomTokens(config_, 5, 1), 1, 3));
  }
  EXPECT_TRUE(running.get().ends[0].cancelled);
  EXPECT_TRUE(waiting.get().ends.empty());
}

// Many inputs of several requests, next to texts that are written.
TEST_F(SchedulerTest, VectorsAreThoseOfEachTextAlone) {
  Scheduler scheduler(*model_, {.slots = 5, .prompt_slice_ms = 1});
  std::vector<std::vector<Tokens>> inputs;
  std::vector<std::future<Told>> vectors, texts;
  for (uint64_t i = 0; i < 8; ++i) {
    inputs.emplace_back();
    for (uint64_t k = 0; k < 1 + i * 5; ++k) {
      inputs.back().push_back(RandomTokens(
          config_, 1 + static_cast<int64_t>((i + k) * 37 % 200), i * 100 + k));
    }
    TextRequest request;
    request.inputs = inputs.back();
    request.pooling = i % 2 == 0 ? Pooling::kMean : Pooling::kLast;
    vectors.push_back(Submit(scheduler, std::move(request)));
    texts.push_back(Submit(scheduler, Request({1, 2, 3}, i, 40)));
  }
  for (uint64_t i = 0; i < 8; ++i) {
    const Told told = vectors[i].get();
    EXPECT_EQ(EmbedTexts(model_->model, inputs[i],
                         i % 2 == 0 ? Pooling::kMean : Pooling::kLast),
              told.vectors);
    int64_t tokens = 0;
    for (const Tokens& input : inputs[i]) {
      tokens += static_cast<int64_t>(input.size());
    }
    EXPECT_EQ(tokens, told.usage.prompt_tokens);
    EXPECT_EQ(0, told.usage.text_tokens);
    EXPECT_EQ(Alone({1, 2, 3}, Request({}, i, 0).options, 40),
              texts[i].get().tokens[0]);
  }
  scheduler.WaitIdle();
  EXPECT_EQ(0, scheduler.counts().waiting);
}

TEST_F(SchedulerTest, NoVectorsForWhoHasGone) {
  Scheduler scheduler(*model_, {});
  TextRequest request;
  request.inputs = {RandomTokens(config_, 500, 1)};
  request.ticket->Cancel();
  const Told told = Submit(scheduler, std::move(request)).get();
  EXPECT_TRUE(told.vectors.empty());
  EXPECT_EQ("", told.error);
  scheduler.WaitIdle();
  EXPECT_EQ(1u, scheduler.counts().cancelled);
  TextRequest bad;
  bad.inputs = {{1}, {}};
  EXPECT_THROW(Submit(scheduler, std::move(bad)), ArgumentError);
}

}  // namespace
}  // namespace tarn::serve
