// The rules of State: logits kept with it, arguments checked before anything
// changes, constant size.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "reference/test_model.h"
#include "runtime/model/impl.h"
#include "runtime/model/model.h"

namespace tarn::testing {
namespace {

class StateTest : public ::testing::Test {
 protected:
  StateTest() : config_(SmallConfig()) {
    WriteModel(folder_.path(), config_, RandomTensors(config_, 1));
    logits_.resize(static_cast<size_t>(config_.vocab_size), -1.0f);
  }
  Model Open() { return Model::Open(folder_.path(), {.threads = 1}).Take(); }

  // The action must throw ArgumentError naming `where` and change nothing.
  template <typename Action>
  void ExpectRefused(State& state, const std::string& where, Action action) {
    const State before = state.Clone();
    const uint64_t hash = state.Hash();
    const Error error = ErrorOf(action);
    EXPECT_EQ(ErrorCode::kArgument, error.code());
    EXPECT_TRUE(Contains(error.where(), where)) << error.what();
    EXPECT_TRUE(before == state);
    EXPECT_EQ(hash, state.Hash());  // a clone may share the memory
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  std::vector<float> logits_;
};

TEST_F(StateTest, LastLogitsTravelWithTheState) {
  const Model model = Open();
  State state(model);
  EXPECT_TRUE(state.last_logits().empty());
  const auto tokens = RandomTokens(config_, 5, 1);
  model.Prefill(state, tokens, logits_.data());
  ASSERT_EQ(logits_.size(), state.last_logits().size());
  EXPECT_EQ(0, std::memcmp(logits_.data(), state.last_logits().data(),
                           logits_.size() * 4));
  // An exact repeat needs no step.
  const State clone = state.Clone();
  std::vector<float> again(logits_.size());
  model.Prefill(state, {}, again.data());
  EXPECT_EQ(logits_, again);
  EXPECT_TRUE(clone == state);
  // A call that asks for no logits leaves none; the states differ only in that.
  model.Step(state, 3);
  EXPECT_TRUE(state.last_logits().empty());
  State other = clone.Clone();
  model.Step(other, 3, logits_.data());
  EXPECT_FALSE(state == other);
  EXPECT_NE(state.Hash(), other.Hash());
  model.Prefill(state, {});
  EXPECT_EQ(6, state.position());
}

// A clone costs memory and time once one of the two moves, whichever it is.
TEST_F(StateTest, ClonesShareMemoryUntilOneMoves) {
  for (const char* mixer : {"linear", "full"}) {
    config_.attention = MixerKind(mixer);
    WriteModel(folder_.path(), config_, RandomTensors(config_, 1));
    const Model model = Open();
    State a(model);
    model.Prefill(a, RandomTokens(config_, 50, 1), logits_.data());
    const auto at = [](const State& state) {
      return std::as_const(Insides::Of(state)).Tensor(0, 0);
    };
    for (const bool parent_moves : {false, true}) {
      State b = a.Clone();
      EXPECT_EQ(at(a), at(b));
      const uint64_t hash = a.Hash();
      State& moves = parent_moves ? a : b;
      const State& stays = parent_moves ? b : a;
      const float* kept = at(stays);
      model.Step(moves, 3, logits_.data());
      EXPECT_NE(at(a), at(b));
      EXPECT_EQ(kept, at(stays));
      EXPECT_EQ(hash, stays.Hash());
      EXPECT_EQ(51, moves.position());
      State alone(model);
      model.Prefill(alone, RandomTokens(config_, 50, 1));
      model.Step(alone, 3, logits_.data());
      EXPECT_TRUE(alone == moves);
      // Once it has memory of its own it keeps it.
      const float* own = at(moves);
      model.Step(moves, 4, logits_.data());
      EXPECT_EQ(own, at(moves));
      if (parent_moves) break;
    }
  }
}

TEST_F(StateTest, ScoreKeepsTheLastRow) {
  const Model model = Open();
  State state(model);
  const auto tokens = RandomTokens(config_, 4, 1);
  std::vector<float> rows(4 * logits_.size());
  model.Score(state, tokens, rows.data());
  EXPECT_EQ(0, std::memcmp(rows.data() + 3 * logits_.size(),
                           state.last_logits().data(), logits_.size() * 4));
  model.Score(state, {}, nullptr);  // no tokens, no rows
  EXPECT_EQ(4, state.position());
}

TEST_F(StateTest, ArgumentsAreCheckedBeforeAnythingChanges) {
  const Model model = Open();
  State state(model);
  model.Prefill(state, RandomTokens(config_, 3, 1), logits_.data());
  const std::vector<int32_t> bad = {1, 2, 29};
  ExpectRefused(state, "tokens[2]", [&] { model.Prefill(state, bad); });
  ExpectRefused(state, "tokens[0]", [&] { model.Step(state, -1); });
  ExpectRefused(state, "logits",
                [&] { model.Score(state, std::span(bad).first(2), nullptr); });
  State other(model);
  const std::vector<int32_t> good = {1, 2};
  std::vector<Job> jobs = {{&state, good}, {&other, bad}};
  ExpectRefused(state, "tokens[2]", [&] { model.StepBatch(jobs); });
  jobs = {{&state, good}, {&other, good}, {&state, good}};
  ExpectRefused(state, "jobs", [&] { model.StepBatch(jobs); });
  jobs = {{&state, good}, {nullptr, good}};
  ExpectRefused(state, "state", [&] { model.StepBatch(jobs); });
  EXPECT_EQ(0, other.position());
  ExpectRefused(other, "tokens",
                [&] { model.Prefill(other, {}, logits_.data()); });
}

TEST_F(StateTest, StatesBelongToTheirModel) {
  const Model model = Open();
  const Model second = Open();
  State state(second);
  ExpectRefused(state, "state", [&] { model.Step(state, 1); });
  State own(model);
  ExpectRefused(own, "CopyFrom", [&] { own.CopyFrom(state); });
  EXPECT_TRUE(own == state);  // the bits are the same nevertheless
}

TEST_F(StateTest, MovesLeaveAnErrorBehind) {
  Model model = Open();
  State state(model);
  model.Step(state, 1);
  Model moved = std::move(model);
  EXPECT_THROW(State{model}, ArgumentError);
  EXPECT_THROW(model.Step(state, 1), ArgumentError);
  moved.Step(state, 1);  // the states go with the model
  State taken = std::move(state);
  EXPECT_EQ(2, taken.position());
  EXPECT_THROW(state.position(), ArgumentError);
  EXPECT_THROW(moved.Step(state, 1), ArgumentError);
}

TEST_F(StateTest, StateOutlivesItsModel) {
  auto model = std::make_unique<Model>(Open());
  State state(*model);
  model->Step(state, 1, logits_.data());
  model.reset();
  const State clone = state.Clone();
  EXPECT_TRUE(clone == state);
  EXPECT_EQ(1, clone.position());
}

TEST_F(StateTest, AHundredThousandTokensTakeNoMemory) {
  ModelConfig config = config_;
  config.d_model = 8;
  config.n_layers = 1;
  config.n_heads = 1;
  config.d_ff = 8;
  config.positions = Positions::kRotary;
  WriteModel(folder_.path(), config, RandomTensors(config, 1));
  const Model model = Open();
  State state(model);
  const int64_t bytes = state.bytes();
  const auto tokens = RandomTokens(config, 1000, 1);
  for (int i = 0; i < 100; ++i) {
    model.Prefill(state, tokens, logits_.data());
    ASSERT_EQ(bytes, state.bytes());
  }
  EXPECT_EQ(100000, state.position());
  for (float x : logits_) EXPECT_TRUE(std::isfinite(x));
}

}  // namespace
}  // namespace tarn::testing
