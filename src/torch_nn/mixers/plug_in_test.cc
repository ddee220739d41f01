// A mixer that this library does not know, added by registration alone: its
// module sees x, works in a hybrid, trains, steps and goes into a state file.
#include <gtest/gtest.h>

#include "core/test_util.h"
#include "torch_nn/mixers/registry.h"
#include "torch_nn/models/language_model.h"
#include "torch_nn/state/stack_file.h"
#include "torch_nn/torch.h"

namespace tarn::nn {
namespace plug_in_test {

// y_t = W sum_{j <= t} x_j: no heads, no bias, a state of one row.
std::vector<NamedShape> Weights(const ModelConfig& layer) {
  return {{"mix.weight", {layer.d_model, layer.d_model}}};
}

StateSpec SumState(const ModelConfig& layer) {
  return {{.name = "sum", .shape = {layer.d_model}}};
}

class RunningSum : public Mixer {
 public:
  RunningSum(const ModelConfig& layer, MixerPlace place) : Mixer(layer, place) {
    mix_ = register_module(
        "mix",
        torch::nn::Linear(torch::nn::LinearOptions(layer.d_model, layer.d_model)
                              .bias(false)));
  }

 protected:
  torch::Tensor Mix(const torch::Tensor& x, const MixerContext&,
                    const torch::Tensor& key_mask) override {
    const torch::Tensor kept =
        key_mask.defined() ? x.masked_fill(~key_mask.unsqueeze(-1), 0.0) : x;
    return mix_(kept.cumsum(1));
  }

  torch::Tensor Continue(const torch::Tensor& x, const MixerContext&,
                         const NewTokens& taken, MixerState& state) override {
    const torch::Tensor places = torch::arange(x.size(1)).view({1, -1, 1});
    const torch::Tensor kept =
        x.masked_fill(places >= taken.added.view({-1, 1, 1}), 0.0);
    const torch::Tensor sums = state["sum"].unsqueeze(1) + kept.cumsum(1);
    if (x.size(1) > 0) state["sum"] = sums.select(1, -1);
    return mix_(sums);
  }

 private:
  torch::nn::Linear mix_{nullptr};
};

std::shared_ptr<Mixer> Make(const ModelConfig& layer, MixerPlace place) {
  return std::make_shared<RunningSum>(layer, place);
}

MixerSpec Row() {
  return {.name = "running-sum",
          .family = "test",
          .sections = {},
          .can = {.recurrent = true, .rotary = false},
          .check = nullptr,
          .weights = Weights,
          .state = SumState,
          .cost = nullptr};
}

// Registered once for all tests of this program.
void Register() {
  static const bool done = [] {
    RegisterMixer(Row());
    RegisterTorchMixer("running-sum", Make);
    return true;
  }();
  (void)done;
}

ModelConfig Hybrid() {
  Register();
  ModelConfig config;
  config.vocab_size = 13;
  config.d_model = 12;
  config.n_layers = 3;
  config.n_heads = 2;
  config.d_ff = 20;
  config.layers = LayersFromText("linear,running-sum,full");
  FinishConfig(config);
  return config;
}

TEST(PlugIn, HasItsWeightsAndGradients) {
  torch::manual_seed(1);
  const auto model = MakeModel(Hybrid());
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& item : model->named_parameters()) {
    shapes[item.key()] = item.value().sizes().vec();
  }
  for (const auto& [name, shape] : WeightShapes(model->config())) {
    EXPECT_EQ(shapes.at(name), shape) << name;
  }
  EXPECT_TRUE(shapes.contains("layers.1.attention.mix.weight"));
  Batch batch;
  batch.tokens = torch::randint(13, {2, 7}, torch::kInt64);
  model->Logits(batch).tanh().sum().backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(torch::isfinite(item.value().grad()).all().item<bool>());
  }
}

TEST(PlugIn, PiecesEqualTheWholeAndStatesAreFiles) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(2);
  LanguageModel model(Hybrid());
  model->eval();
  const torch::Tensor tokens = torch::randint(13, {2, 9}, torch::kInt64);
  const torch::Tensor whole = model->forward(tokens);
  TemporaryFolder folder;
  StackState state = model->InitialState(2);
  EXPECT_EQ(state.layers[1]["sum"].sizes().vec(),
            (std::vector<int64_t>{2, 12}));
  for (int64_t done = 0; done < 9; done += 3) {
    auto [logits, next] =
        model->Prefill(tokens.slice(1, done, done + 3), state);
    EXPECT_TRUE(
        torch::allclose(logits, whole.slice(1, done, done + 3), 0, 1e-5));
    SaveState(*model, next, folder / "a.state");
    state = LoadState(*model, folder / "a.state");
    EXPECT_TRUE(state == next);
  }
  // Rows of a ragged piece are at their own lengths.
  const torch::Tensor lengths = torch::tensor({1, 2}, torch::kInt64);
  state = model->Prefill(tokens.slice(1, 0, 2), model->InitialState(2), lengths)
              .second;
  const torch::Tensor row =
      model->Prefill(tokens.slice(1, 1, 2), state).first[0][0];
  EXPECT_TRUE(torch::allclose(row, whole[0][1], 0, 1e-5));
}

TEST(PlugIn, BadRegistrationsAreRefused) {
  Register();
  const auto where = [](const char* name, MixerFactory factory) {
    return ErrorOf([&] { RegisterTorchMixer(name, factory); }).where();
  };
  EXPECT_EQ(where("running-sum", nullptr), "RegisterTorchMixer: factory");
  EXPECT_EQ(where(nullptr, Make), "RegisterTorchMixer: factory");
  EXPECT_EQ(where("no-such-mixer", Make), "RegisterTorchMixer: name");
  EXPECT_EQ(where("running-sum", Make), "RegisterTorchMixer: name");
  EXPECT_EQ(where("linear", Make), "RegisterTorchMixer: name");
  // Known to configurations, without a module.
  MixerSpec spec = Row();
  spec.name = "running-sum-without-module";
  ModelConfig layer = LayerView(Hybrid(), 1);
  layer.attention = RegisterMixer(spec);
  const Error error = ErrorOf([&] { MakeMixer(layer); });
  EXPECT_EQ(error.where(), "attention");
  EXPECT_TRUE(Contains(error.given(), spec.name));
}

TEST(PlugIn, ReadsNoMemory) {
  const ModelConfig layer = LayerView(Hybrid(), 1);
  const torch::Tensor x = torch::zeros({1, 2, 12});
  const auto cross = MakeMixer(layer, {.causal = false, .cross = true});
  EXPECT_THROW(cross->MemoryState(x), ArgumentError);
  EXPECT_THROW(cross->InitialState(1), ArgumentError);
  const auto self = MakeMixer(layer);
  EXPECT_THROW(self->MemoryState(x), ArgumentError);
  EXPECT_THROW(self->Read(x, self->InitialState(1)), ArgumentError);
  EXPECT_THROW(self->Prefill(x, self->InitialState(2)), ArgumentError);
  EXPECT_THROW(self->InitialState(1)["S"], ArgumentError);
}

}  // namespace plug_in_test
}  // namespace tarn::nn
