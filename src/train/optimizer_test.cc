#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "train/test_files.h"

namespace tarn::train {
namespace {

// One parameter under the formulas of notes and papers, in double.
struct Reference {
  double p, m = 0, v = 0;
  int k = 0;

  void AdamW(double g, const AdamOptions& o) {
    Means(g, o);
    const double m_hat = m / (1 - std::pow(o.beta1, k));
    const double v_hat = v / (1 - std::pow(o.beta2, k));
    p -= o.lr * m_hat / (std::sqrt(v_hat) + o.eps);
  }

  void RAdam(double g, const AdamOptions& o) {
    Means(g, o);
    const double b2k = std::pow(o.beta2, k);
    const double inf = 2 / (1 - o.beta2) - 1;
    const double rho = inf - 2 * k * b2k / (1 - b2k);
    if (rho >= 5) {
      p -= o.lr * m / (std::sqrt(v) + o.eps) *
           std::sqrt((1 - b2k) * (rho - 4) / (inf - 4) * (rho - 2) / rho * inf /
                     (inf - 2)) /
           (1 - std::pow(o.beta1, k));
    } else {
      p -= o.lr * m / (1 - std::pow(o.beta1, k));
    }
  }

 private:
  void Means(double g, const AdamOptions& o) {
    ++k;
    p -= o.lr * o.weight_decay * p;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
  }
};

// A gradient that changes sign and size from step to step.
double Gradient(int element, int k) {
  return std::sin(1.7 * k + element) * std::pow(10.0, element % 5 - 3);
}

constexpr int kElements = 11;

template <typename Update, typename Oracle>
void Compare(Update update, Oracle oracle, int steps) {
  AdamOptions options;
  options.lr = 0.01;
  options.weight_decay = 0.1;
  const torch::NoGradGuard no_grad;
  torch::Tensor p = torch::linspace(-1, 1, kElements, torch::kFloat64);
  torch::Tensor m = torch::zeros_like(p), v = torch::zeros_like(p);
  std::vector<Reference> want(kElements);
  for (int i = 0; i < kElements; ++i) want[i].p = p[i].item<double>();
  for (int k = 1; k <= steps; ++k) {
    torch::Tensor g = torch::empty_like(p);
    for (int i = 0; i < kElements; ++i) g[i] = Gradient(i, k);
    update(p, g, m, v, k, options);
    for (int i = 0; i < kElements; ++i) {
      (want[i].*oracle)(Gradient(i, k), options);
      ASSERT_NEAR(p[i].item<double>(), want[i].p, 1e-12) << k << ' ' << i;
    }
  }
}

TEST(OptimizerTest, AdamWFollowsItsFormula) {
  Compare(AdamWUpdate, &Reference::AdamW, 50);
}

// 50 steps cross k = 6, from where the rate is rectified.
TEST(OptimizerTest, RAdamFollowsThePapersVariant) {
  Compare(RAdamUpdate, &Reference::RAdam, 50);
}

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
  Optimizer optimizer(Named(ours), OptimizerKind::kAdamW, 0.05, 0);
  torch::optim::AdamW reference(
      theirs, torch::optim::AdamWOptions(0.02).weight_decay(0.05));
  for (int step = 0; step < 40; ++step) {
    Loss(ours).backward();
    optimizer.Step(0.02);
    reference.zero_grad();
    Loss(theirs).backward();
    reference.step();
    for (size_t i = 0; i < ours.size(); ++i) {
      // Rounding of float32, carried through 40 steps.
      ASSERT_TRUE(torch::allclose(ours[i], theirs[i], 1e-5, 1e-6)) << step;
    }
  }
}

TEST(OptimizerTest, ClippingBoundsTheRightNorm) {
  const auto leaves = Leaves();
  const NamedTensors named = Named(leaves);
  const auto set_gradients = [&] {
    for (const torch::Tensor& leaf : leaves) {
      leaf.mutable_grad() = torch::full_like(leaf, 2.0);
    }
  };
  set_gradients();
  const double norm = GradientNorm(named);
  EXPECT_NEAR(norm, 2 * std::sqrt(12.0 + 20 + 7), 1e-5);
  ClipTogether(named, norm, 0.5);
  EXPECT_NEAR(GradientNorm(named), 0.5, 1e-6);
  // Directions stay: all elements were equal and still are.
  EXPECT_FLOAT_EQ(leaves[0].grad()[0][0].item<float>(),
                  leaves[2].grad()[6].item<float>());
  ClipTogether(named, 0.5, 1.0);
  EXPECT_NEAR(GradientNorm(named), 0.5, 1e-6);

  set_gradients();
  leaves[1].mutable_grad() = torch::full_like(leaves[1], 1e-3);
  ClipEach(named, 1.0);
  EXPECT_NEAR(leaves[0].grad().norm().item<double>(), 1, 1e-6);
  EXPECT_NEAR(leaves[2].grad().norm().item<double>(), 1, 1e-6);
  EXPECT_NEAR(leaves[1].grad().norm().item<double>(), 1e-3 * std::sqrt(20.0),
              1e-8);
}

TEST(OptimizerTest, NoNumberChangesNothing) {
  const auto leaves = Leaves();
  const torch::Tensor before = leaves[0].detach().clone();
  Optimizer optimizer(Named(leaves), OptimizerKind::kAdamW, 0.1, 1);
  for (const torch::Tensor& leaf : leaves) {
    leaf.mutable_grad() = torch::full_like(leaf, NAN);
  }
  EXPECT_TRUE(std::isnan(optimizer.Step(0.1)));
  EXPECT_TRUE(torch::equal(leaves[0].detach(), before));
  EXPECT_EQ(optimizer.updates(), 0);
}

class OptimizerStateTest : public testing::TestWithParam<OptimizerKind> {};

TEST_P(OptimizerStateTest, SavedStateContinuesToTheBit) {
  const TempFolder dir;
  const auto straight = Leaves();
  auto resumed = Leaves();
  Optimizer whole(Named(straight), GetParam(), 0.01, 1);
  const auto learn = [](const std::vector<torch::Tensor>& leaves,
                        Optimizer& optimizer, int steps) {
    for (int i = 0; i < steps; ++i) {
      Loss(leaves).backward();
      optimizer.Step(0.03);
    }
  };
  learn(straight, whole, 20);
  {
    Optimizer first(Named(resumed), GetParam(), 0.01, 1);
    learn(resumed, first, 9);
    first.Save(dir.Name("state"));
  }
  Optimizer second(Named(resumed), GetParam(), 0.01, 1);
  second.Load(dir.Name("state"));
  EXPECT_EQ(second.updates(), 9);
  learn(resumed, second, 11);
  for (size_t i = 0; i < straight.size(); ++i) {
    EXPECT_TRUE(torch::equal(straight[i], resumed[i]));
  }
}

TEST_P(OptimizerStateTest, RefusesStateOfAnotherModel) {
  const TempFolder dir;
  const auto leaves = Leaves();
  Optimizer(Named(leaves), GetParam(), 0, 0).Save(dir.Name("state"));
  auto fewer = leaves;
  fewer.pop_back();
  auto other = leaves;
  other[2] = torch::zeros({8}).requires_grad_();
  Optimizer few(Named(fewer), GetParam(), 0, 0);
  EXPECT_THROW(few.Load(dir.Name("state")), FormatError);
  Optimizer wider(Named(other), GetParam(), 0, 0);
  EXPECT_THROW(wider.Load(dir.Name("state")), FormatError);
}

INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerStateTest,
                         testing::Values(OptimizerKind::kAdamW,
                                         OptimizerKind::kRAdam));

}  // namespace
}  // namespace tarn::train
