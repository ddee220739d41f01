// What several ranks compute is what one computes, with threads for ranks.
#include "train/distributed/ranks.h"

#include <gtest/gtest.h>

#include <mutex>
#include <sstream>

#include "train/distributed/thread_ranks.h"
#include "train/objectives/test_plans.h"

namespace tarn::train {
namespace ranks_test {

// float32 sums in another order.
constexpr double kBound = 2e-6;

NamedTensors ParametersOf(const nn::ModelImpl& model) {
  NamedTensors parameters;
  for (const auto& item : model.named_parameters()) {
    parameters.emplace_back(item.key(), item.value());
  }
  return parameters;
}

TEST(RanksTest, RowsAreDistributedWithoutGapsAndEvenly) {
  for (const int64_t rows : {1, 2, 7, 8, 64}) {
    for (const int64_t size : {1, 2, 3, 8, 9}) {
      int64_t next = 0;
      for (int64_t rank = 0; rank < size; ++rank) {
        const RowShare share = ShareOfRows(rows, rank, size);
        EXPECT_EQ(share.begin, next);
        EXPECT_LE(share.count - rows / size, 1);
        EXPECT_GE(share.count, rows / size);
        next += share.count;
      }
      EXPECT_EQ(next, rows);
    }
  }
}

Given TextPlan() {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += StrCat(7919 * i % 1000, " is ", i, "\n");
  return {{"data", text}, {"seq_len", "16"}, {"records", "block"}};
}

Given PlanOf(const std::string& name) {
  return name == "text" ? TextPlan() : GivenOf(name);
}

class DealtTest : public testing::TestWithParam<std::string> {};

// Two parts an update; 2, 3 and 5 ranks for their 4 rows each: with 5 one has
// none.
TEST_P(DealtTest, GradientIsThatOfOneRank) {
  Given given = PlanOf(GetParam());
  given.emplace_back("accumulate", "2");
  const Planned p(given);
  const TrainOptions& options = p.plan.state.options;
  const auto whole = p.NewModel();
  StepFigures wanted;
  AddGradient(*p.objective, *whole, options, 3, wanted);
  for (const int64_t size : {2, 3, 5}) {
    std::mutex one_at_a_time;
    ThreadGroup::Run(size, [&](Ranks& ranks) {
      const auto [model, objective] = [&] {
        const std::lock_guard lock(one_at_a_time);
        return std::pair(p.NewModel(), MakeObjective(p.plan));
      }();
      const auto exchange = ranks.Exchange(model->parameters());
      StepFigures figures;
      AddGradient(*objective, *model, options, 3, {ranks}, exchange.get(),
                  figures);
      EXPECT_NEAR(figures.loss, wanted.loss, kBound * 4);
      EXPECT_EQ(figures.tokens, wanted.tokens);
      EXPECT_EQ(figures.accuracy.has_value(), wanted.accuracy.has_value());
      if (wanted.accuracy) {
        EXPECT_DOUBLE_EQ(*figures.accuracy, *wanted.accuracy);
      }
      if (wanted.bits_per_byte) {
        EXPECT_NEAR(*figures.bits_per_byte, *wanted.bits_per_byte, kBound * 4);
      }
      const auto theirs = whole->parameters(), ours = model->parameters();
      for (size_t i = 0; i < ours.size(); ++i) {
        ASSERT_EQ(ours[i].grad().defined(), theirs[i].grad().defined());
        if (!ours[i].grad().defined()) continue;
        EXPECT_LE((ours[i].grad() - theirs[i].grad()).abs().max().item<float>(),
                  kBound * (1 + theirs[i].grad().abs().max().item<float>()))
            << i << " of " << size;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, DealtTest,
                         testing::Values("text", "linear", "full", "hybrid",
                                         "lstm", "labels", "pairs"));

// Options of a model, "key=value" with semicolons between them.
class CutTest : public testing::TestWithParam<std::string> {
 protected:
  static Given Options() {
    Given given = TextPlan();
    std::stringstream words(GetParam());
    for (std::string word; std::getline(words, word, ';');) {
      const size_t at = word.find('=');
      given.emplace_back(word.substr(0, at), word.substr(at + 1));
    }
    return given;
  }
};

// Rows of 23 tokens over 2, 3 and 4 ranks, which do not divide them.
TEST_P(CutTest, GradientIsThatOfWholeRows) {
  Given given = Options();
  given.emplace_back("seq_len", "23");
  given.emplace_back("accumulate", "2");
  const Planned p(given);
  const TrainOptions& options = p.plan.state.options;
  const auto whole = p.NewModel();
  StepFigures wanted;
  StepFigures seen;
  p.objective->EvaluateHeldOut(*whole, nullptr, seen);
  AddGradient(*p.objective, *whole, options, 3, wanted);
  for (const int64_t size : {2, 3, 4}) {
    std::mutex one_at_a_time;
    ThreadGroup::Run(size, [&](Ranks& ranks) {
      const auto [model, objective] = [&] {
        const std::lock_guard lock(one_at_a_time);
        return std::pair(p.NewModel(), MakeObjective(p.plan));
      }();
      const RankedSequence sequence(ranks);
      const auto exchange = ranks.Exchange(model->parameters());
      StepFigures held_out;
      objective->EvaluateHeldOut(*model, &sequence, held_out);
      EXPECT_NEAR(*held_out.val_loss, *seen.val_loss, kBound * 4);
      EXPECT_NEAR(*held_out.val_bits_per_byte, *seen.val_bits_per_byte,
                  kBound * 4);
      StepFigures figures;
      AddGradient(*objective, *model, options, 3, {ranks, &sequence},
                  exchange.get(), figures);
      EXPECT_NEAR(figures.loss, wanted.loss, kBound * 4);
      EXPECT_EQ(figures.tokens, wanted.tokens);
      EXPECT_NEAR(*figures.bits_per_byte, *wanted.bits_per_byte, kBound * 4);
      const auto theirs = whole->parameters(), ours = model->parameters();
      for (size_t i = 0; i < ours.size(); ++i) {
        if (!theirs[i].grad().defined()) continue;
        EXPECT_LE((ours[i].grad() - theirs[i].grad()).abs().max().item<float>(),
                  5 * kBound * (1 + theirs[i].grad().abs().max().item<float>()))
            << i << " of " << size;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layers, CutTest,
    testing::Values("layers=linear", "layers=full;positions=rotary",
                    "layers=aft-simple", "layers=aft-full",
                    "layers=local:local_context=8",
                    "layers=linear,full,aft-simple;n_layers=3"));
INSTANTIATE_TEST_SUITE_P(
    Gated, CutTest,
    testing::Values("layers=retnet;positions=rotary", "layers=lightning",
                    "layers=mamba2:key_heads=1", "layers=gla", "layers=hgrn2",
                    "layers=deltanet:negative_eigenvalues=true",
                    "layers=gdn:conv_width=8", "layers=kda:key_heads=1",
                    "layers=gdn,full,mamba2;n_layers=3;positions=rotary",
                    "layers=norm-linear:qk_map=hadamard",
                    "layers=norm-linear:qk_map=dpfp:divided_sums=true",
                    "layers=rwkv6", "layers=rwkv7", "layers=mamba1",
                    "layers=mamba1:conv_width=0,linear;n_layers=2",
                    "layers=short-conv", "layers=rg-lru", "layers=mlstm",
                    "layers=rg-lru:conv_width=0,short-conv:conv_bias=true;"
                    "n_layers=2",
                    "layers=hgrn2;n_layers=3;learned_bounds=true",
                    "layers=rwkv7;n_layers=3;value_residual=true;"
                    "input_norm=true",
                    "layers=mamba2+full:window=3:branch_factor=0.5,"
                    "linear+gdn;n_layers=2;norm=both",
                    "layers=rwkv7;feed_forward=channel-mix",
                    "layers=linear,full;n_layers=2;norm=post;"
                    "feed_forward=channel-mix",
                    "layers=gated-full:key_heads=1;positions=rotary",
                    "layers=full:key_heads=1:window=3:sinks=true",
                    "layers=full:latent_width=5:qkv_bias=false",
                    "layers=gdn,gated-full;positions=rotary;rotary_width=4"));
INSTANTIATE_TEST_SUITE_P(
    LinearForms, CutTest,
    testing::Values("feature_map=relu", "feature_map=relu2",
                    "feature_map=softplus",
                    "feature_map=identity;denominator=none",
                    "feature_map=poly2", "feature_map=favor",
                    "feature_map=favor-positive", "feature_map=rff",
                    "feature_map=smoothed-rff", "feature_map=grf",
                    "feature_map=favor;stabilise=true",
                    "feature_map=rff;denominator=signed", "denominator=compat",
                    "positions=rotary", "positions=rotary;rotary_place=after"));

class ShardedTest : public testing::TestWithParam<OptimizerKind> {};

// Parts of unequal gradients on every rank, shapes that no number of ranks
// divides, and one parameter without a gradient on any rank.
TEST_P(ShardedTest, UpdatesAndFilesAreThoseOfOneRank) {
  const TemporaryFolder dir;
  const std::vector<int64_t> sizes = {13, 1, 40, 6};
  const auto leaves = [&] {
    std::vector<torch::Tensor> made;
    for (const int64_t n : sizes) {
      made.push_back(
          (torch::arange(n, torch::kFloat32) / 7 - 1).requires_grad_());
    }
    return made;
  };
  const auto named = [](const std::vector<torch::Tensor>& tensors) {
    NamedTensors all;
    for (size_t i = 0; i < tensors.size(); ++i) {
      all.emplace_back(StrCat("p", i), tensors[i]);
    }
    return all;
  };
  // Gives a rank its share of a gradient that depends on the weights.
  const auto give = [](std::vector<torch::Tensor>& tensors, double share) {
    for (size_t i = 0; i + 1 < tensors.size(); ++i) {
      tensors[i].mutable_grad() =
          ((tensors[i].detach() * 3).sin() * (i + 1.0) * share).clone();
    }
  };
  auto whole = leaves();
  AloneOptimizer alone(named(whole), GetParam(), 0.05, 1.0);
  std::vector<double> norms;
  for (int step = 0; step < 8; ++step) {
    give(whole, 1.0);
    norms.push_back(alone->Step(0.02));
  }
  alone->Save(dir / "whole");
  for (const int64_t size : {2, 3, 7}) {
    ThreadGroup::Run(size, [&](Ranks& ranks) {
      auto ours = leaves();
      const auto optimizer =
          MakeOptimizer(named(ours), {GetParam(), 0.05, 1.0}, ranks, true);
      for (int step = 0; step < 8; ++step) {
        // The shares add up to 1: 1/2, 1/4, ..., and the rest for the last one.
        const bool last = ranks.rank() + 1 == ranks.size();
        give(ours, std::pow(0.5, ranks.rank() + (last ? 0 : 1)));
        EXPECT_NEAR(optimizer->Step(0.02), norms[step], 1e-5 * norms[step]);
      }
      for (size_t i = 0; i < ours.size(); ++i) {
        EXPECT_TRUE(torch::allclose(ours[i], whole[i], 1e-5, 1e-6)) << i;
      }
      EXPECT_LE(optimizer->state_bytes(), 8 * (60 / size + 1));
      optimizer->Save(ranks.is_first() ? dir / StrCat("parts", size) : "");
      // What one wrote all can read, and the other way round.
      auto again = leaves();
      const auto second =
          MakeOptimizer(named(again), {GetParam(), 0.05, 1.0}, ranks, true);
      second->Load(dir / "whole");
      EXPECT_EQ(second->updates(), 8);
      second->Save(ranks.is_first() ? dir / StrCat("copy", size) : "");
    });
    EXPECT_EQ(dir.Read(StrCat("copy", size)), dir.Read("whole"));
    auto back = leaves();
    AloneOptimizer one(named(back), GetParam(), 0.05, 1.0);
    one->Load(dir / StrCat("parts", size));
    EXPECT_EQ(one->updates(), 8);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ShardedTest,
                         testing::Values(OptimizerKind::kAdamW,
                                         OptimizerKind::kRAdam));

}  // namespace ranks_test
}  // namespace tarn::train
