// Golden training: ten steps of the language model and of the same model from
// plain torch operations in float64. Every loss and every gradient agrees.
#include <gtest/gtest.h>

#include "reference/torch/plain_model.h"
#include "torch_nn/models/language_model.h"
#include "torch_nn/torch.h"

namespace tarn::nn {
namespace golden_training_test {

constexpr int kSteps = 10;
constexpr double kRate = 0.2;

ModelConfig SmallConfig(AttentionKind kind) {
  ModelConfig config;
  config.vocab_size = 19;
  config.d_model = 32;
  config.n_layers = 2;
  config.n_heads = 4;
  config.max_positions = 70;
  config.attention = kind;
  FinishConfig(config);
  return config;
}

// The next token is a function of the last two, so that there is something to
// learn in ten steps.
torch::Tensor Sequences() {
  torch::Tensor tokens = torch::randint(19, {4, 71}, torch::kInt64);
  for (int64_t t = 2; t < 71; ++t) {
    tokens.select(1, t) =
        (tokens.select(1, t - 1) + 3 * tokens.select(1, t - 2)) % 19;
  }
  return tokens;
}

torch::Tensor Loss(const torch::Tensor& logits, const torch::Tensor& tokens) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1),
                                              tokens.slice(1, 1).flatten());
}

void TrainBeside(const ModelConfig& config) {
  torch::set_num_threads(1);  // tensors too small to share
  torch::manual_seed(21);
  LanguageModel model(config);
  plain::Weights weights = plain::CopyWeights(*model, torch::kFloat64);
  const torch::Tensor tokens = Sequences();
  const torch::Tensor inputs = tokens.slice(1, 0, 70);
  double first_loss = 0, last_loss = 0;
  for (int step = 0; step < kSteps; ++step) {
    model->zero_grad();
    const torch::Tensor loss = Loss(model(inputs), tokens);
    loss.backward();
    const torch::Tensor expected =
        Loss(plain::Logits(config, weights, inputs), tokens);
    expected.backward();
    last_loss = expected.item<double>();
    if (step == 0) first_loss = last_loss;
    EXPECT_NEAR(loss.item<double>(), last_loss, 1e-5) << "step " << step;

    torch::NoGradGuard no_grad;
    for (auto& item : model->named_parameters()) {
      torch::Tensor& plain_weight = weights.at(item.key());
      torch::Tensor& gradient = plain_weight.mutable_grad();
      // Relative to the largest entry: float32 rounds sums of 280 tokens.
      const double largest = gradient.abs().max().item<double>();
      EXPECT_LT((item.value().grad() - gradient).abs().max().item<double>(),
                1e-4 * largest + 1e-7)
          << item.key() << ", step " << step;
      item.value().sub_(item.value().grad(), kRate);
      plain_weight.sub_(gradient, kRate);
      gradient.reset();
    }
  }
  // The steps moved the model; gradients of 0 would agree as well.
  EXPECT_LT(last_loss, first_loss - 0.05);
}

TEST(Training, LinearEqualsPlainModel) {
  TrainBeside(SmallConfig(MixerKind("linear")));
}

TEST(Training, FullEqualsPlainModel) {
  TrainBeside(SmallConfig(MixerKind("full")));
}

TEST(Training, LinearRotaryAfterTiedPostNormEqualsPlainModel) {
  ModelConfig config = SmallConfig(MixerKind("linear"));
  config.positions = Positions::kRotary;
  config.rotary_place = RotaryPlace::kAfter;
  config.norm = Norm::kPost;
  config.tied_head = true;
  TrainBeside(config);
}

}  // namespace golden_training_test
}  // namespace tarn::nn
