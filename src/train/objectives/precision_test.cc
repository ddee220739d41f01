// bf16 compared with f32: what autocast may change of a loss and its gradient,
// and what it may not.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "train/objectives/autocast.h"
#include "train/objectives/test_plans.h"

namespace tarn::train {
namespace precision_test {

// bfloat16 has 8 bits, so a product is off by 2^-9 of itself at most. Losses
// here are means of numbers near log(vocabulary) whose logits are products of
// rows of unit size; a few layers of them stay below a hundredth, and
// gradients, through as many products again, below a tenth of their norm.
constexpr double kLossBound = 0.01, kGradientBound = 0.1;

struct Gradient {
  double loss = 0;
  torch::Tensor flat;  // of all parameters, one after the other
};

Gradient GradientOf(Planned& p, nn::ModelImpl& model, Precision precision) {
  p.options().precision = precision;
  StepFigures figures;
  torch::manual_seed(2);
  AddGradient(*p.objective, model, p.options(), 1, figures);
  std::vector<torch::Tensor> parts;
  for (torch::Tensor& parameter : model.parameters()) {
    EXPECT_EQ(parameter.scalar_type(), torch::kFloat32);
    if (!parameter.grad().defined()) continue;
    EXPECT_EQ(parameter.grad().scalar_type(), torch::kFloat32);
    parts.push_back(parameter.grad().flatten().clone());
    parameter.mutable_grad().reset();
  }
  return {figures.loss, torch::cat(parts)};
}

class PrecisionTest : public testing::TestWithParam<std::string> {};

TEST_P(PrecisionTest, LossAndGradientComeNearThoseOfFloat32) {
  Planned p(GivenOf(GetParam()));
  const auto model = p.NewModel();
  const Gradient wide = GradientOf(p, *model, Precision::kF32);
  const Gradient narrow = GradientOf(p, *model, Precision::kBF16);
  EXPECT_NEAR(narrow.loss, wide.loss, kLossBound);
  EXPECT_NE(narrow.loss, wide.loss);  // products were rounded
  EXPECT_LT((narrow.flat - wide.flat).norm().item<double>(),
            kGradientBound * wide.flat.norm().item<double>());
  // The same call gives the same bits.
  const Gradient again = GradientOf(p, *model, Precision::kBF16);
  EXPECT_EQ(again.loss, narrow.loss);
  EXPECT_TRUE(again.flat.equal(narrow.flat));
  // It also leaves no state behind.
  const Gradient last = GradientOf(p, *model, Precision::kF32);
  EXPECT_EQ(last.loss, wide.loss);
  EXPECT_TRUE(last.flat.equal(wide.flat));
}

INSTANTIATE_TEST_SUITE_P(Models, PrecisionTest, testing::ValuesIn(kPlans),
                         [](const auto& test) { return test.param; });

// Held-out figures are those of the weights in the files.
TEST(PrecisionTest, HeldOutDataAreLookedAtInFloat32) {
  Planned p(GivenOf("linear"));
  const auto model = p.NewModel();
  StepFigures wide, narrow;
  p.objective->EvaluateHeldOut(*model, nullptr, wide);
  p.options().precision = Precision::kBF16;
  p.objective->EvaluateHeldOut(*model, nullptr, narrow);
  EXPECT_EQ(*wide.val_loss, *narrow.val_loss);
}

// Autocast keeps its copies of parameters until its outermost scope ends.
TEST(PrecisionTest, AnUpdateIsSeenByTheNextLoss) {
  Planned p(GivenOf("linear"));
  const auto model = p.NewModel();
  GradientOf(p, *model, Precision::kBF16);
  {
    torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : model->parameters()) parameter.mul_(1.5);
  }
  const Gradient narrow = GradientOf(p, *model, Precision::kBF16);
  const Gradient wide = GradientOf(p, *model, Precision::kF32);
  EXPECT_NEAR(narrow.loss, wide.loss, kLossBound);
}

TEST(AutocastTest, RestoresWhatWasThere) {
  using namespace at::autocast;
  const auto device = torch::kCPU;
  set_autocast_enabled(device, false);
  set_autocast_dtype(device, torch::kHalf);
  try {
    const Autocast narrow(device, Precision::kBF16);
    EXPECT_TRUE(is_autocast_enabled(device));
    EXPECT_EQ(get_autocast_dtype(device), torch::kBFloat16);
    {
      const Autocast wide(device, Precision::kF32);
      EXPECT_FALSE(is_autocast_enabled(device));
    }
    EXPECT_TRUE(is_autocast_enabled(device));
    throw std::runtime_error("in the middle");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(is_autocast_enabled(device));
  EXPECT_EQ(get_autocast_dtype(device), torch::kHalf);
  set_autocast_dtype(device, torch::kBFloat16);
}

}  // namespace precision_test
}  // namespace tarn::train
