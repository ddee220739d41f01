// Models of task ctc, held to the classifiers, which have an oracle of their
// own: frames that are embedded tokens make the same values, and the mean of a
// linear head is the head of the mean.
#include <gtest/gtest.h>

#include "core/test_util.h"
#include "torch_nn/models/classifier.h"
#include "torch_nn/models/frame_classifier.h"
#include "torch_nn/models/model.h"
#include "torch_nn/torch.h"

namespace tarn::nn {
namespace frame_models_test {

constexpr int64_t kVocab = 7, kClasses = 5, kBatch = 3, kLen = 6;

ModelConfig SmallConfig(Arch arch, Task task) {
  ModelConfig config;
  config.arch = arch;
  config.task = task;
  config.vocab_size = kVocab;
  config.n_classes = kClasses;
  config.d_model = 12;
  config.n_layers = 2;
  config.n_heads = 2;
  config.max_positions = 40;
  config.dropout = 0.1;  // must not act in eval mode
  config.bidirectional = arch == Arch::kLstm;
  if (task == Task::kCtc) {
    config.input_dim = arch == Arch::kLstm ? config.d_model : kVocab;
  }
  FinishConfig(config);
  return config;
}

std::vector<ModelConfig> Variants() {
  std::vector<ModelConfig> configs = {SmallConfig(Arch::kLstm, Task::kCtc),
                                      SmallConfig(Arch::kEncoder, Task::kCtc)};
  configs.push_back(configs[0]);
  configs.back().bidirectional = false;
  const ModelConfig encoder = configs[1];
  for (const auto kind : {MixerKind("full"), MixerKind("reformer")}) {
    configs.push_back(encoder);
    configs.back().attention = kind;
    SetKey(configs.back(), "bits", 4), SetKey(configs.back(), "hash_chunk", 4);
  }
  for (const auto positions :
       {Positions::kNone, Positions::kRotary, Positions::kSinusoidal}) {
    configs.push_back(encoder);
    configs.back().positions = positions;
  }
  configs.back().position_combine = PositionCombine::kConcat;
  configs.push_back(encoder);
  configs.back().norm = Norm::kPost;
  configs.back().final_norm = false;
  return configs;
}

// The classifier of the same shapes, and its weights in the model of frames.
std::shared_ptr<ModelImpl> TwinOf(ModelImpl& model) {
  ModelConfig config = model.config();
  config.task = Task::kClassify;
  config.input_dim = 0;
  auto twin = MakeModel(config);
  twin->eval();
  torch::NoGradGuard no_grad;
  const auto theirs = twin->named_parameters();
  for (auto& item : model.named_parameters()) {
    if (theirs.contains(item.key())) item.value().copy_(theirs[item.key()]);
    if (item.key() == "input_projection.bias") item.value().zero_();
    if (item.key() == "input_projection.weight") {
      item.value().copy_(theirs["value_embedding.weight"].t());
    }
  }
  return twin;
}

Batch Frames(const ModelConfig& config, const ModelImpl& twin,
             const torch::Tensor& tokens, const torch::Tensor& lengths) {
  Batch batch;
  batch.lengths = lengths;
  batch.frames =
      config.arch == Arch::kLstm
          ? torch::embedding(twin.named_parameters()["value_embedding.weight"],
                             tokens)
          : torch::one_hot(tokens, kVocab).to(torch::kFloat32);
  return batch;
}

TEST(FrameModels, MeanOverFramesIsTheClassifier) {
  for (const ModelConfig& config : Variants()) {
    torch::manual_seed(4);
    auto model = MakeModel(config);
    model->eval();
    const auto twin = TwinOf(*model);
    torch::NoGradGuard no_grad;
    Batch tokens;
    tokens.tokens = torch::randint(kVocab, {kBatch, kLen}, torch::kInt64);
    tokens.lengths = torch::tensor({kLen, int64_t{1}, int64_t{4}});
    Batch frames = Frames(config, *twin, tokens.tokens, tokens.lengths);
    // What is past a row's end must not matter, whatever it is.
    for (int64_t b = 0; b < kBatch; ++b) {
      const int64_t length = tokens.lengths[b].item<int64_t>();
      frames.frames[b].narrow(0, length, kLen - length).fill_(NAN);
    }
    const torch::Tensor logits = model->Logits(frames);
    ASSERT_EQ(logits.sizes(), (std::vector<int64_t>{kBatch, kLen, kClasses}));
    const torch::Tensor wanted = twin->Logits(tokens);
    for (int64_t b = 0; b < kBatch; ++b) {
      const int64_t length = tokens.lengths[b].item<int64_t>();
      const torch::Tensor mean = logits[b].narrow(0, 0, length).mean(0);
      EXPECT_LT((mean - wanted[b]).abs().max().item<double>(), 2e-5)
          << Name(config.arch) << " " << Name(config.attention) << " row " << b;
    }
  }
}

TEST(FrameModels, TensorsAreThoseOfTheConfig) {
  for (const ModelConfig& config : Variants()) {
    const auto model = MakeModel(config);
    const auto present = model->named_parameters();
    const auto shapes = WeightShapes(config);
    EXPECT_EQ(present.size(), shapes.size());
    for (const auto& [name, shape] : shapes) {
      ASSERT_TRUE(present.contains(name)) << name;
      EXPECT_EQ(present[name].sizes(), shape) << name;
    }
    const std::string path = testing::TempDir() + "/frames.safetensors";
    SaveWeights(*model, path);
    const auto again = MakeModel(config);
    LoadWeights(*again, path);
    for (const auto& item : again->named_parameters()) {
      EXPECT_TRUE(torch::equal(item.value(), present[item.key()]));
    }
  }
}

TEST(FrameModels, EmptyBatchesAndSequences) {
  for (const ModelConfig& config : Variants()) {
    auto model = MakeModel(config);
    model->eval();
    for (const auto& [rows, length] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 0}, {0, 4}, {2, 0}, {1, 1}}) {
      Batch batch;
      batch.frames = torch::randn({rows, length, config.input_dim});
      EXPECT_EQ(model->Logits(batch).sizes(),
                (std::vector<int64_t>{rows, length, kClasses}));
      batch.lengths = torch::zeros({rows}, torch::kInt64);
      EXPECT_EQ(model->Logits(batch).sizes(),
                (std::vector<int64_t>{rows, length, kClasses}));
    }
  }
}

TEST(FrameModels, RefuseWrongFrames) {
  for (const Arch arch : {Arch::kEncoder, Arch::kLstm}) {
    auto model = MakeModel(SmallConfig(arch, Task::kCtc));
    const int64_t width = model->config().input_dim;
    Batch batch;
    EXPECT_THROW(model->Logits(batch), ArgumentError);
    batch.frames = torch::randn({2, width});
    EXPECT_THROW(model->Logits(batch), ShapeError);
    batch.frames = torch::randn({2, 3, width + 1});
    EXPECT_THROW(model->Logits(batch), ShapeError);
    batch.frames = torch::randn({2, 3, width}, torch::kFloat64);
    EXPECT_TRUE(
        Contains(ErrorOf([&] { model->Logits(batch); }).where(), ": frames"));
    EXPECT_THROW(model->Logits(batch), DTypeError);
    batch.frames = torch::randn({2, 3, width});
    batch.lengths = torch::tensor({int64_t{3}, int64_t{4}});
    EXPECT_THROW(model->Logits(batch), Error);
  }
  EXPECT_THROW(FrameClassifier(SmallConfig(Arch::kEncoder, Task::kClassify)),
               ArgumentError);
  EXPECT_THROW(Classifier(SmallConfig(Arch::kEncoder, Task::kCtc)),
               ArgumentError);
}

}  // namespace frame_models_test
}  // namespace tarn::nn
