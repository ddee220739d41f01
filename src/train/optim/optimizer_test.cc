#include "train/optim/optimizer.h"

#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <cmath>

#include "core/error.h"
#include "core/test_util.h"
#include "train/distributed/thread_ranks.h"

namespace tarn::train {
namespace optimizer_test {

torch::Tensor Loss(const std::vector<torch::Tensor>& p) {
  return (p[0].matmul(p[1]).tanh() - 0.3).square().sum() + p[2].square().sum();
}

std::vector<torch::Tensor> Leaves() {
  torch::manual_seed(5);
  std::vector<torch::Tensor> leaves = {torch::randn({3, 4}),
                                       torch::randn({4, 5}), torch::randn({7})};
  for (torch::Tensor& leaf : leaves) leaf.requires_grad_();
  return leaves;
}

NamedTensors Named(const std::vector<torch::Tensor>& leaves) {
  NamedTensors named;
  for (size_t i = 0; i < leaves.size(); ++i) {
    named.emplace_back("p" + std::to_string(i), leaves[i]);
  }
  return named;
}

TEST(OptimizerTest, AdamWAgreesWithTorch) {
  const auto ours = Leaves(), theirs = Leaves();
  AloneOptimizer optimizer(Named(ours), OptimizerKind::kAdamW, 0.05, 0);
  torch::optim::AdamW reference(
      theirs, torch::optim::AdamWOptions(0.02).weight_decay(0.05));
  for (int step = 0; step < 40; ++step) {
    Loss(ours).backward();
    optimizer->Step(0.02);
    reference.zero_grad();
    Loss(theirs).backward();
    reference.step();
    for (size_t i = 0; i < ours.size(); ++i) {
      // Rounding of float32, carried through 40 steps.
      ASSERT_TRUE(torch::allclose(ours[i], theirs[i], 1e-5, 1e-6)) << step;
    }
  }
}

// With no decay and update 1, RAdam's step is lr times the clipped gradient.
TEST(OptimizerTest, RAdamClipsEachTensor) {
  const auto leaves = Leaves();
  std::vector<torch::Tensor> before;
  for (const torch::Tensor& leaf : leaves) {
    before.push_back(leaf.detach().clone());
    leaf.mutable_grad() = torch::full_like(leaf, 2.0);
  }
  leaves[1].mutable_grad() = torch::full_like(leaves[1], 1e-3);
  AloneOptimizer optimizer(Named(leaves), OptimizerKind::kRAdam, 0, 1);
  const double norm = optimizer->Step(1.0);
  EXPECT_NEAR(norm, std::sqrt(4 * (12.0 + 7) + 20e-6), 1e-5);
  const auto moved = [&](size_t i) {
    return (leaves[i].detach() - before[i]).norm().item<double>();
  };
  EXPECT_NEAR(moved(0), 1, 1e-5);
  EXPECT_NEAR(moved(2), 1, 1e-5);
  EXPECT_NEAR(moved(1), 1e-3 * std::sqrt(20.0), 1e-6);
}

// AdamW's step forgets the gradient's scale, its second moment does not: two
// optimisers agree when one is given the clipped gradients.
TEST(OptimizerTest, AdamWClipsTheNormOverAll) {
  const auto ours = Leaves(), theirs = Leaves();
  AloneOptimizer clipping(Named(ours), OptimizerKind::kAdamW, 0.1, 0.5);
  AloneOptimizer plain(Named(theirs), OptimizerKind::kAdamW, 0.1, 0);
  for (int step = 0; step < 5; ++step) {
    const double norm = (step + 1) * 2 * std::sqrt(12.0 + 20 + 7);
    for (size_t i = 0; i < ours.size(); ++i) {
      ours[i].mutable_grad() = torch::full_like(ours[i], 2.0 * (step + 1));
      theirs[i].mutable_grad() = ours[i].grad() * (0.5 / norm);
    }
    EXPECT_NEAR(clipping->Step(0.1), norm, 1e-4);
    EXPECT_NEAR(plain->Step(0.1), 0.5, 1e-5);
    for (size_t i = 0; i < ours.size(); ++i) {
      ASSERT_TRUE(torch::allclose(ours[i], theirs[i], 1e-5, 1e-6)) << step;
    }
  }
}

TEST(OptimizerTest, NoNumberChangesNothing) {
  const auto leaves = Leaves();
  const torch::Tensor before = leaves[0].detach().clone();
  AloneOptimizer optimizer(Named(leaves), OptimizerKind::kAdamW, 0.1, 1);
  for (const torch::Tensor& leaf : leaves) {
    leaf.mutable_grad() = torch::full_like(leaf, NAN);
  }
  EXPECT_TRUE(std::isnan(optimizer->Step(0.1)));
  EXPECT_TRUE(torch::equal(leaves[0].detach(), before));
  EXPECT_EQ(optimizer->updates(), 0);
}

class OptimizerStateTest : public testing::TestWithParam<OptimizerKind> {};

TEST_P(OptimizerStateTest, SavedStateContinuesToTheBit) {
  const TemporaryFolder dir;
  const auto straight = Leaves();
  auto resumed = Leaves();
  AloneOptimizer whole(Named(straight), GetParam(), 0.01, 1);
  const auto learn = [](const std::vector<torch::Tensor>& leaves,
                        AloneOptimizer& optimizer, int steps) {
    for (int i = 0; i < steps; ++i) {
      Loss(leaves).backward();
      optimizer->Step(0.03);
    }
  };
  learn(straight, whole, 20);
  {
    AloneOptimizer first(Named(resumed), GetParam(), 0.01, 1);
    learn(resumed, first, 9);
    first->Save(dir / "state");
  }
  AloneOptimizer second(Named(resumed), GetParam(), 0.01, 1);
  second->Load(dir / "state");
  EXPECT_EQ(second->updates(), 9);
  learn(resumed, second, 11);
  for (size_t i = 0; i < straight.size(); ++i) {
    EXPECT_TRUE(torch::equal(straight[i], resumed[i]));
  }
}

TEST_P(OptimizerStateTest, RefusesStateOfAnotherModel) {
  const TemporaryFolder dir;
  const auto leaves = Leaves();
  AloneOptimizer(Named(leaves), GetParam(), 0, 0)->Save(dir / "state");
  auto fewer = leaves;
  fewer.pop_back();
  auto other = leaves;
  other[2] = torch::zeros({8}).requires_grad_();
  AloneOptimizer few(Named(fewer), GetParam(), 0, 0);
  EXPECT_THROW(few->Load(dir / "state"), FormatError);
  AloneOptimizer wider(Named(other), GetParam(), 0, 0);
  EXPECT_THROW(wider->Load(dir / "state"), FormatError);
}

INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerStateTest,
                         testing::Values(OptimizerKind::kAdamW,
                                         OptimizerKind::kRAdam));

}  // namespace optimizer_test
}  // namespace tarn::train
