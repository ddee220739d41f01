// The recurrent form of every model that has one: pieces against the whole
// sequence, rows at lengths of their own, states as values.
#include <gtest/gtest.h>

#include "core/test_util.h"
#include "torch_nn/models/language_model.h"
#include "torch_nn/models/ragged_batch.h"
#include "torch_nn/models/recurrent.h"
#include "torch_nn/models/seq2seq.h"
#include "torch_nn/torch.h"

namespace tarn::nn {
namespace models_test {

using plain::LargestError;

// Logits of tokens taken in piece by piece equal those of all at once,
// an empty piece among them.
template <typename Prefill>
void ExpectPiecesEqualWhole(const torch::Tensor& tokens,
                            const torch::Tensor& whole, StackState state,
                            const Prefill& prefill, const std::string& what) {
  int64_t done = 0;
  for (const int64_t piece : {3, 0, 1, 1, 4}) {
    torch::Tensor logits;
    std::tie(logits, state) =
        prefill(tokens.slice(1, done, done + piece), state, torch::Tensor());
    EXPECT_LT(piece == 0
                  ? 0.0
                  : LargestError(logits, whole.slice(1, done, done + piece)),
              1e-5)
        << what << ", piece of " << piece << " after " << done;
    done += piece;
  }
  EXPECT_TRUE((state.lengths() == done).all().item<bool>());
}

TEST(Model, PiecesEqualWholeSequence) {
  torch::NoGradGuard no_grad;
  for (const ModelConfig& config : Variants(Arch::kDecoder)) {
    const auto base = EvalModel(config);
    auto& model = dynamic_cast<LanguageModelImpl&>(*base);
    if (!HasRecurrentForm(config)) {
      EXPECT_THROW(model.InitialState(2), ArgumentError);
      continue;
    }
    const torch::Tensor tokens = Tokens(2, 9);
    ExpectPiecesEqualWhole(
        tokens, model.forward(tokens), model.InitialState(2),
        [&](const auto& piece, const auto& state, const auto& lengths) {
          return model.Prefill(piece, state, lengths);
        },
        TextOf(config));
  }
  for (const ModelConfig& config : Variants(Arch::kSeq2seq)) {
    const auto base = EvalModel(config);
    auto& model = dynamic_cast<Seq2SeqImpl&>(*base);
    if (!HasRecurrentForm(config)) continue;
    Batch batch = RaggedBatch(SmallConfig(Arch::kSeq2seq));
    batch.target_in = Tokens(3, 9);
    batch.target_lengths = torch::Tensor();
    ExpectPiecesEqualWhole(
        batch.target_in, model.Logits(batch),
        model.Encode(batch.tokens, batch.lengths),
        [&](const auto& piece, const auto& state, const auto& lengths) {
          return model.Prefill(piece, state, lengths);
        },
        TextOf(config));
  }
}

TEST(Model, RecurrentModelsStep) {
  torch::NoGradGuard no_grad;
  for (const Arch arch : {Arch::kRnn, Arch::kLstm}) {
    for (const ModelConfig& config : Variants(arch)) {
      const auto base = EvalModel(config);
      auto& model = dynamic_cast<RecurrentModelImpl&>(*base);
      if (config.task != Task::kLm) {
        EXPECT_THROW(model.InitialState(2), ArgumentError);
        continue;
      }
      Batch batch;
      batch.tokens = Tokens(2, 9);
      const torch::Tensor whole = model.Logits(batch);
      RecurrentState state = model.InitialState(2);
      int64_t done = 0;
      for (const int64_t piece : {4, 0, 1, 4}) {
        torch::Tensor logits;
        std::tie(logits, state) =
            model.Prefill(batch.tokens.slice(1, done, done + piece), state);
        if (piece == 0) continue;
        EXPECT_LT(LargestError(logits, whole.slice(1, done, done + piece)),
                  1e-5)
            << TextOf(config);
        done += piece;
      }
      EXPECT_THROW(model.Prefill(Tokens(3, 1), state), ArgumentError);
    }
  }
}

// Each sequence is at its own length after a ragged piece.
TEST(Model, RaggedPiecesLeaveEachRowAtItsLength) {
  torch::NoGradGuard no_grad;
  for (const ModelConfig& config : Variants(Arch::kDecoder)) {
    if (!HasRecurrentForm(config)) continue;
    const auto base = EvalModel(config);
    auto& model = dynamic_cast<LanguageModelImpl&>(*base);
    const torch::Tensor tokens = Tokens(3, 8);
    const torch::Tensor first = Lengths({4, 0, 2}), second = Lengths({1, 3, 3});
    StackState state = model.InitialState(3);
    torch::Tensor logits;
    std::tie(logits, state) =
        model.Prefill(tokens.slice(1, 0, 4), state, first);
    std::tie(logits, state) =
        model.Prefill(tokens.slice(1, 4, 7), state, second);
    std::tie(logits, state) = model.Prefill(tokens.slice(1, 7), state);
    EXPECT_TRUE(torch::equal(state.lengths(), first + second + 1));
    for (int64_t b = 0; b < 3; ++b) {
      const torch::Tensor row = tokens[b];
      const torch::Tensor all = torch::cat(
          {row.slice(0, 0, first[b].item<int64_t>()),
           row.slice(0, 4, 4 + second[b].item<int64_t>()), row.slice(0, 7)});
      const torch::Tensor want = model.forward(all.unsqueeze(0))[0][-1];
      EXPECT_LT(LargestError(logits[b][0], want), 1e-5)
          << TextOf(config) << ", row " << b;
    }
  }
}

TEST(Model, StatesAreValues) {
  torch::NoGradGuard no_grad;
  for (const ModelConfig& config : Variants(Arch::kSeq2seq)) {
    if (!HasRecurrentForm(config)) continue;
    const auto base = EvalModel(config);
    auto& model = dynamic_cast<Seq2SeqImpl&>(*base);
    const Batch batch = RaggedBatch(SmallConfig(Arch::kSeq2seq));
    const StackState encoded = model.Encode(batch.tokens, batch.lengths);
    const auto [unused, state] =
        model.Prefill(batch.target_in.slice(1, 0, 3), encoded);
    const torch::Tensor next = Tokens(3, 1);
    const torch::Tensor want = model.Prefill(next, state).first;
    // A fork goes its own way and leaves the original as it was.
    StackState fork = state;
    fork = model.Prefill(Tokens(3, 2), fork).second;
    EXPECT_TRUE(torch::equal(model.Prefill(next, state).first, want));
    // Reordered, repeated rows.
    const torch::Tensor rows = Lengths({2, 0, 2, 1});
    EXPECT_TRUE(torch::allclose(
        model.Prefill(next.index({rows}), state.IndexSelect(rows)).first,
        want.index({rows}), 0, 1e-6));
    // Row 1 begins again, the others stay.
    const torch::Tensor which = Lengths({0, 1, 0}).to(torch::kBool);
    const torch::Tensor reset = model.Prefill(next, state.Reset(which)).first;
    EXPECT_TRUE(torch::allclose(reset[0], want[0], 0, 1e-6));
    EXPECT_TRUE(torch::allclose(reset[1], model.Prefill(next, encoded).first[1],
                                0, 1e-6));
    if (config.attention != MixerKind("local")) {  // may see itself alone
      EXPECT_FALSE(torch::allclose(reset[1], want[1], 0, 1e-4))
          << TextOf(config);
    }
    EXPECT_GT(state.bytes(), 0);
    EXPECT_THROW(state.IndexSelect(Lengths({3})), ArgumentError);
    EXPECT_THROW(state.Reset(which.slice(0, 1)), ShapeError);
    EXPECT_THROW(model.Prefill(Tokens(2, 1), state), ArgumentError);
  }
}

TEST(Model, AttentionFreeRefusesLongInput) {
  ModelConfig config = SmallConfig(Arch::kDecoder);
  config.attention = MixerKind("aft-full");
  config.d_value = 4;
  SetKey(config, "max_sequence_length", 5);
  const auto base = EvalModel(config);
  Batch batch;
  batch.tokens = Tokens(1, 6);
  const Error error = ErrorOf([&] { base->Logits(batch); });
  EXPECT_TRUE(Contains(error.wanted(), "max_sequence_length = 5"));
  auto& model = dynamic_cast<LanguageModelImpl&>(*base);
  const StackState state =
      model.Prefill(Tokens(1, 5), model.InitialState(1)).second;
  EXPECT_THROW(model.Prefill(Tokens(1, 1), state), ArgumentError);
}

}  // namespace models_test
}  // namespace tarn::nn
