// A family added by registration alone, in a hybrid with two of the tree's own:
// it learns, its three forms agree, its state is a file.
#include "ema.h"

#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "core/file.h"
#include "core/test_util.h"
#include "runtime/model/model.h"
#include "runtime/session/state_file.h"
#include "text/tokenizer.h"
#include "torch_nn/models/language_model.h"
#include "torch_nn/torch.h"
#include "train/trainer.h"

namespace tarn::plugin {
namespace {

constexpr double kThreeWay = 3e-5;

ModelConfig Hybrid() {
  RegisterEmaModule();
  ModelConfig config;
  config.vocab_size = 23;
  config.d_model = 16;
  config.n_layers = 4;
  config.n_heads = 2;
  config.layers = LayersFromText("ema:ema_least=0.25,linear,full");
  config.norm_kind = NormKind::kRms;
  config.feed_forward = FeedForwardOf("swiglu");
  FinishConfig(config);
  return config;
}

torch::Tensor Tokens(int64_t count) {
  return (torch::arange(count) * 7 % 23).to(torch::kInt64).unsqueeze(0);
}

// Updates on one row until it is known by heart.
nn::LanguageModel Trained() {
  torch::manual_seed(1);
  nn::LanguageModel model(Hybrid());
  torch::optim::Adam optimizer(model->parameters(),
                               torch::optim::AdamOptions(1e-2));
  const torch::Tensor row = Tokens(24);
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    const torch::Tensor logits = model->forward(row.slice(1, 0, 23));
    const torch::Tensor loss =
        torch::cross_entropy_loss(logits[0], row[0].slice(0, 1, 24));
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.2 * first);
  model->eval();
  return model;
}

TEST(Ema, ThreeFormsAgreeInAHybrid) {
  const torch::NoGradGuard no_grad;
  nn::LanguageModel model = [] {
    const torch::AutoGradMode enable(true);
    return Trained();
  }();
  TemporaryFolder folder;
  const std::string dir = folder / "model";
  std::filesystem::create_directory(dir);
  WriteFileAtomically(dir + "/config.json", ConfigToJson(model->config()));
  WriteFileAtomically(dir + "/tokenizer.json", Tokenizer::Byte().ToJson());
  nn::SaveWeights(*model, dir + "/model.safetensors");

  const int64_t count = 19;
  const torch::Tensor want = model->forward(Tokens(count))[0];
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(i * 7 % 23);
  const Model runtime = Model::Open(dir).Take();
  tarn::State prefilled(runtime), stepped(runtime);
  std::vector<float> whole(static_cast<size_t>(count * 23)), one(23);
  runtime.Score(prefilled, tokens, whole.data());
  for (int64_t i = 0; i < count; ++i) {
    runtime.Step(stepped, tokens[static_cast<size_t>(i)], one.data());
    for (size_t j = 0; j < 23; ++j) {
      EXPECT_EQ(one[j], whole[static_cast<size_t>(i) * 23 + j]);
      EXPECT_NEAR(one[j], want[i][static_cast<int64_t>(j)].item<float>(),
                  kThreeWay);
    }
  }
  EXPECT_TRUE(prefilled == stepped);
  SaveState(runtime, stepped, folder / "a.state");
  EXPECT_TRUE(LoadState(runtime, folder / "a.state").Take() == stepped);
  // The torch side in pieces.
  nn::StackState state = model->InitialState(1);
  for (int64_t done = 0; done < count; done += 5) {
    const int64_t end = std::min<int64_t>(done + 5, count);
    auto [logits, next] =
        model->Prefill(Tokens(count).slice(1, done, end), state);
    EXPECT_TRUE(
        torch::allclose(logits[0], want.slice(0, done, end), 0, kThreeWay));
    state = next;
  }
}

// Says nothing, and asks for a stop after a step.
class StopAfter final : public train::Reporter {
 public:
  explicit StopAfter(int64_t step) : step_(step) {}
  void Note(const std::string&) override {}
  void Step(const train::StepFigures& figures, int64_t) override {
    if (figures.step == step_) stop = true;
  }
  void Sample(const std::string&) override {}

  std::atomic<bool> stop{false};

 private:
  int64_t step_;
};

bool TrainUntil(const train::Given& given, int64_t step) {
  StopAfter reporter(step);
  return train::Train(given, reporter.stop, reporter).finished;
}

// The trainer takes the family and its key as options, and a run in two parts
// ends in the bits of one.
TEST(Ema, TrainsAndResumesByTheTrainer) {
  RegisterEmaModule();
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "abc " + std::to_string(i % 7);
  WriteFileAtomically(folder / "text", text);
  const auto options = [&](const std::string& out) {
    return train::Given{{"data", folder / "text"},
                        {"out", folder / out},
                        {"steps", "6"},
                        {"layers", "ema,linear,full"},
                        {"ema_least", "0.125"},
                        {"d_model", "16"},
                        {"n_layers", "3"},
                        {"n_heads", "2"},
                        {"dropout", "0.1"},
                        {"seq_len", "16"},
                        {"batch", "2"}};
  };
  EXPECT_TRUE(TrainUntil(options("whole"), 0));
  EXPECT_FALSE(TrainUntil(options("parts"), 3));
  EXPECT_TRUE(TrainUntil({{"out", folder / "parts"}, {"resume", "true"}}, 0));
  const auto file = [&](const char* name) {
    return ReadFile(folder / name, 1 << 26).Take();
  };
  EXPECT_TRUE(file("whole/model.safetensors") ==
              file("parts/model.safetensors"));
  const std::string json = file("whole/config.json");
  EXPECT_EQ(json, file("parts/config.json"));
  EXPECT_TRUE(Contains(json, "\"least\": 0.125")) << json;
  const ModelConfig config = ConfigFromJson(json).Take();
  EXPECT_EQ(Least(config), 0.125);
  EXPECT_EQ(ConfigToJson(config), json);
  // What was written runs without torch.
  const Model runtime = Model::Open(folder / "whole").Take();
  tarn::State state(runtime);
  std::vector<float> logits(256);
  runtime.Step(state, 'a', logits.data());
  EXPECT_TRUE(std::isfinite(logits[0]));
}

// What a family's own key accepts, and what ignores it.
TEST(Ema, KeysStandInASectionOfTheirOwn) {
  ModelConfig config = Hybrid();
  EXPECT_TRUE(Contains(ConfigToJson(config), "\"ema_least\": 0.25"));
  EXPECT_FALSE(Contains(ConfigToJson(ModelConfig()), "ema"));
  EXPECT_FALSE(Contains(ConfigToFlatJson(ModelConfig()), "ema"));
  try {
    SetConfigField(config, "ema_least", "0.95");
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_EQ(error.where(), "ema_least");
    EXPECT_EQ(error.wanted(), "a number from 0 to 0.9");
  }
  MixerSpec other = Spec(MixersOf(config).front());
  other.name = "other";
  EXPECT_THROW(RegisterMixer(other), ArgumentError);  // its section is taken
  other.family = "other";
  EXPECT_THROW(RegisterMixer(other), ArgumentError);  // and its key
}

// What a program prints, followed by its exit code.
std::string Output(const std::string& command) {
  std::string text;
  FILE* pipe = popen((command + " 2>&1; echo exit $?").c_str(), "r");
  if (pipe == nullptr) return "no pipe";
  char buffer[4096];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) text += buffer;
  pclose(pipe);
  return text;
}

// A program that registers the family has it in every command; one that does
// not names what it knows.
TEST(Ema, CommandsKnowTheFamily) {
  ModelConfig config = Hybrid();
  config.vocab_size = 256;
  torch::manual_seed(2);
  nn::LanguageModel model(config);
  TemporaryFolder folder;
  const std::string dir = folder / "model";
  std::filesystem::create_directory(dir);
  WriteFileAtomically(dir + "/config.json", ConfigToJson(model->config()));
  WriteFileAtomically(dir + "/tokenizer.json", Tokenizer::Byte().ToJson());
  nn::SaveWeights(*model, dir + "/model.safetensors");
  const std::string with = TARN_WITH_EMA;
  const std::string info = Output(with + " info --json " + dir);
  EXPECT_TRUE(Contains(info, "\"ema\"") && Contains(info, "exit 0")) << info;
  const std::string verify = Output(with + " verify " + dir);
  EXPECT_TRUE(Contains(verify, "ok ") && Contains(verify, "exit 0")) << verify;
  const std::string text =
      Output(with + " generate " + dir + " --prompt A --max-tokens 5 --seed 1");
  EXPECT_TRUE(Contains(text, "exit 0")) << text;
  const std::string without = Output(std::string(TARN) + " verify " + dir);
  EXPECT_TRUE(Contains(without, "'ema'") && Contains(without, "exit 3"))
      << without;
}

}  // namespace
}  // namespace tarn::plugin
