// The language model: names, values for every configuration, causality, weight
// files and what must be refused.
#include "torch_nn/models/language_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "core/feature_map.h"
#include "core/safetensors.h"
#include "core/test_util.h"
#include "reference/torch/plain_model.h"
#include "torch_nn/torch.h"

namespace tarn::nn {
namespace language_model_test {

ModelConfig SmallConfig() {
  ModelConfig config;
  config.vocab_size = 17;
  config.d_model = 12;
  config.n_layers = 2;
  config.n_heads = 2;
  config.d_key = 4;
  config.d_value = 3;
  config.d_ff = 20;
  config.max_positions = 40;
  config.dropout = 0.1;  // must not act in eval mode
  FinishConfig(config);
  return config;
}

// Calls `check` with every combination of choices that FinishConfig accepts.
void ForEveryConfig(const std::function<void(const ModelConfig&)>& check) {
  std::vector<ModelConfig> configs = {SmallConfig()};
  const auto vary = [&](auto member, auto values) {
    std::vector<ModelConfig> more;
    for (const ModelConfig& config : configs) {
      for (const auto value : values) {
        more.push_back(config);
        more.back().*member = value;
      }
    }
    configs = more;
  };
  using std::initializer_list;
  const initializer_list<bool> both = {false, true};
  vary(&ModelConfig::attention,
       initializer_list{MixerKind("linear"), MixerKind("full")});
  vary(&ModelConfig::positions,
       initializer_list{Positions::kNone, Positions::kSinusoidal,
                        Positions::kLearned, Positions::kRotary});
  vary(&ModelConfig::position_combine,
       initializer_list{PositionCombine::kAdd, PositionCombine::kConcat});
  vary(&ModelConfig::rotary_place,
       initializer_list{RotaryPlace::kBefore, RotaryPlace::kAfter});
  vary(&ModelConfig::norm, initializer_list{Norm::kPost, Norm::kPre});
  vary(&ModelConfig::activation,
       initializer_list{Activation::kRelu, Activation::kGelu});
  const std::vector<ModelConfig> so_far = configs;
  for (const auto denominator : {Denominator::kCompat, Denominator::kNone}) {
    for (ModelConfig config : so_far) {
      SetKey(config, "denominator", denominator);
      configs.push_back(config);
    }
  }
  vary(&ModelConfig::tied_head, both);
  vary(&ModelConfig::final_norm, both);
  int accepted = 0;
  for (ModelConfig& config : configs) {
    try {
      FinishConfig(config);
    } catch (const ArgumentError&) {
      continue;
    }
    check(config);
    ++accepted;
  }
  EXPECT_GT(accepted, 500);
}

std::string TextOf(const ModelConfig& c) {
  return StrCat(Name(c.attention), " ", Name(c.positions), " ",
                Name(c.position_combine), " ", Name(c.rotary_place), " ",
                Name(c.norm), " ", Name(c.activation), " ",
                Name(KeyOf<Denominator>(c, "denominator")),
                c.tied_head ? " tied" : "", c.final_norm ? " final_norm" : "");
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

torch::Tensor Tokens(int64_t batch, int64_t seq_len) {
  return torch::randint(17, {batch, seq_len}, torch::kInt64);
}

LanguageModel EvalModel(const ModelConfig& config, uint64_t seed = 1) {
  torch::manual_seed(seed);
  LanguageModel model(config);
  model->eval();
  return model;
}

TEST(LanguageModel, NamesShapesAndOrder) {
  ForEveryConfig([](const ModelConfig& config) {
    LanguageModel model(config);
    const auto shapes = WeightShapes(config);
    const auto parameters = model->named_parameters();
    ASSERT_EQ(parameters.size(), shapes.size()) << TextOf(config);
    for (size_t i = 0; i < shapes.size(); ++i) {
      EXPECT_EQ(parameters[i].key(), shapes[i].first) << TextOf(config);
      EXPECT_EQ(parameters[i].value().sizes().vec(), shapes[i].second);
      EXPECT_EQ(parameters[i].value().scalar_type(), torch::kFloat32);
      EXPECT_TRUE(parameters[i].value().requires_grad());
    }
    EXPECT_EQ(model->named_buffers().size(), 0u);
  });
}

TEST(LanguageModel, EqualsPlainModel) {
  torch::set_num_threads(1);  // tensors too small to share
  torch::NoGradGuard no_grad;
  ForEveryConfig([](const ModelConfig& config) {
    LanguageModel model = EvalModel(config);
    const torch::Tensor tokens = Tokens(2, 9);
    const torch::Tensor expected = plain::Logits(
        config, plain::CopyWeights(*model, torch::kFloat64), tokens);
    EXPECT_LT(plain::LargestError(model(tokens), expected), 2e-5)
        << TextOf(config);
  });
}

TEST(LanguageModel, LearnedPositionsEndWithTheirTable) {
  torch::NoGradGuard no_grad;
  ModelConfig config = SmallConfig();
  config.positions = Positions::kLearned;
  config.max_positions = 6;
  LanguageModel model = EvalModel(config);
  EXPECT_EQ(model(Tokens(2, 6)).size(1), 6);
  EXPECT_THROW(model(Tokens(2, 7)), ArgumentError);
  const auto [logits, state] =
      model->Prefill(Tokens(2, 4), model->InitialState(2));
  EXPECT_EQ(model->Prefill(Tokens(2, 2), state).first.size(1), 2);
  EXPECT_THROW(model->Prefill(Tokens(2, 3), state), ArgumentError);
  // One sequence of a batch is enough.
  const auto ragged = model->Prefill(Tokens(2, 5), model->InitialState(2),
                                     torch::tensor({1, 5}, torch::kInt64));
  EXPECT_THROW(model->Prefill(Tokens(2, 2), ragged.second), ArgumentError);
}

TEST(LanguageModel, LaterTokensChangeNoEarlierLogits) {
  torch::NoGradGuard no_grad;
  // 150 tokens: several chunks; the first changed token is inside one.
  for (const int64_t changed : {1, 77, 149}) {
    for (const AttentionKind kind : {MixerKind("linear"), MixerKind("full")}) {
      for (const RotaryPlace place :
           {RotaryPlace::kBefore, RotaryPlace::kAfter}) {
        ModelConfig config = SmallConfig();
        config.attention = kind;
        config.positions = Positions::kRotary;
        config.rotary_place = place;
        LanguageModel model = EvalModel(config);
        const torch::Tensor tokens = Tokens(2, 150);
        torch::Tensor other = tokens.clone();
        other.slice(1, changed) = (other.slice(1, changed) + 5) % 17;
        const torch::Tensor a = model(tokens), b = model(other);
        EXPECT_TRUE(
            torch::equal(a.slice(1, 0, changed), b.slice(1, 0, changed)))
            << TextOf(config) << " " << changed;
        EXPECT_FALSE(torch::equal(a.slice(1, changed), b.slice(1, changed)));
      }
    }
  }
}

TEST(LanguageModel, RowsOfTheBatchAreIndependent) {
  torch::NoGradGuard no_grad;
  LanguageModel model = EvalModel(SmallConfig());
  const torch::Tensor tokens = Tokens(3, 20);
  const torch::Tensor together = model(tokens);
  for (int64_t b = 0; b < 3; ++b) {
    EXPECT_LT(
        plain::LargestError(model(tokens.narrow(0, b, 1))[0], together[b]),
        1e-6);
  }
}

TEST(LanguageModel, EmptySequencesAndBatches) {
  for (const AttentionKind kind : {MixerKind("linear"), MixerKind("full")}) {
    ModelConfig config = SmallConfig();
    config.attention = kind;
    LanguageModel model = EvalModel(config);
    EXPECT_EQ(model(Tokens(2, 0)).sizes().vec(),
              (std::vector<int64_t>{2, 0, 17}));
    EXPECT_EQ(model(Tokens(0, 5)).sizes().vec(),
              (std::vector<int64_t>{0, 5, 17}));
    EXPECT_EQ(model(Tokens(1, 1)).sizes().vec(),
              (std::vector<int64_t>{1, 1, 17}));
  }
}

TEST(LanguageModel, RefusesWrongTokens) {
  LanguageModel model = EvalModel(SmallConfig());
  EXPECT_THROW(model(Tokens(2, 3)[0]), ShapeError);
  EXPECT_THROW(model(Tokens(2, 3).to(torch::kInt32)), DTypeError);
  torch::Tensor tokens = Tokens(2, 3);
  tokens[1][2] = 17;
  const Error high = ErrorOf([&] { model(tokens); });
  EXPECT_EQ(high.code(), ErrorCode::kArgument);
  EXPECT_EQ(high.given(), "17");
  tokens[1][2] = -1;
  EXPECT_EQ(ErrorOf([&] { model(tokens); }).given(), "-1");
}

TEST(LanguageModel, RefusesImpossibleConfig) {
  ModelConfig config;
  config.n_heads = 3;  // does not divide 128
  EXPECT_THROW(LanguageModel{config}, ArgumentError);
}

TEST(LanguageModel, Initialisation) {
  ModelConfig config;  // 256 x 128
  config.positions = Positions::kLearned;
  LanguageModel untied = EvalModel(config);
  const auto spread = [](LanguageModel& model, const char* name) {
    return model->named_parameters()[name].std().item<double>();
  };
  // 32,768 draws or more: the standard deviation is known to 1 %.
  EXPECT_NEAR(spread(untied, "value_embedding.weight"), 1.0, 0.02);
  EXPECT_NEAR(spread(untied, "pos_embedding.weight"), 0.02, 4e-4);
  const torch::Tensor weight = untied->named_parameters()["predictor.weight"];
  EXPECT_NEAR(weight.abs().max().item<double>(), 1 / std::sqrt(128.0), 1e-4);
  EXPECT_NEAR(weight.std().item<double>(), 1 / std::sqrt(3 * 128.0), 1e-3);
  config.tied_head = true;
  LanguageModel tied = EvalModel(config);
  EXPECT_NEAR(spread(tied, "value_embedding.weight"), 0.02, 4e-4);
  LanguageModel again = EvalModel(config);
  for (const auto& item : tied->named_parameters()) {
    EXPECT_TRUE(
        torch::equal(item.value(), again->named_parameters()[item.key()]));
  }
}

TEST(Weights, RoundTripIsByteEqual) {
  torch::NoGradGuard no_grad;
  TemporaryFolder folder;
  for (const bool tied : {false, true}) {
    ModelConfig config = SmallConfig();
    config.tied_head = tied;
    LanguageModel first = EvalModel(config, 1), second = EvalModel(config, 2);
    const torch::Tensor tokens = Tokens(2, 9);
    EXPECT_FALSE(torch::equal(first(tokens), second(tokens)));
    SaveWeights(first, folder / "a.safetensors", {{"step", "7"}});
    LoadWeights(second, folder / "a.safetensors");
    EXPECT_TRUE(torch::equal(first(tokens), second(tokens)));
    SaveWeights(second, folder / "b.safetensors", {{"step", "7"}});
    const std::string bytes = Contents(folder / "a.safetensors");
    EXPECT_GT(bytes.size(), 4000u);
    EXPECT_EQ(bytes, Contents(folder / "b.safetensors"));
    // Weights that are not float32 are written as float32.
    second->to(torch::kFloat64);
    SaveWeights(second, folder / "b.safetensors", {{"step", "7"}});
    EXPECT_EQ(bytes, Contents(folder / "b.safetensors"));
  }
}

// A weight file for SmallConfig() whose list of tensors `change` has edited.
void WriteChanged(
    const std::string& path,
    const std::function<void(std::vector<TensorToWrite>&)>& change) {
  static const std::vector<float> zeros(4096, 0.0f);
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, shape] : WeightShapes(SmallConfig())) {
    tensors.push_back({name, DType::kF32, shape, zeros.data()});
  }
  change(tensors);
  WriteSafetensors(path, tensors, {});
}

TEST(Weights, WrongFilesAreRefusedAndChangeNothing) {
  TemporaryFolder folder;
  const std::string path = folder / "w.safetensors";
  LanguageModel model = EvalModel(SmallConfig());
  const plain::Weights before = plain::CopyWeights(*model, torch::kFloat32);
  const auto refused = [&](const std::string& part) {
    EXPECT_THROW(LoadWeights(model, path), FormatError) << part;
    const std::string message =
        ErrorOf([&] { LoadWeights(model, path); }).what();
    EXPECT_TRUE(Contains(message, part)) << message;
    EXPECT_TRUE(Contains(message, path)) << message;
    for (const auto& item : model->named_parameters()) {
      EXPECT_TRUE(torch::equal(item.value(), before.at(item.key())));
    }
  };
  using Tensors = std::vector<TensorToWrite>;
  WriteChanged(path, [](Tensors& t) { t.pop_back(); });
  refused("predictor.bias");
  WriteChanged(path, [](Tensors& t) {
    t.push_back({"layers.2.norm1.bias", DType::kF32, {12}, t[0].data});
  });
  refused("layers.2.norm1.bias");
  // Same count of elements, axes exchanged.
  WriteChanged(path,
               [](Tensors& t) { std::swap(t[0].shape[0], t[0].shape[1]); });
  refused("value_embedding.weight");
  WriteChanged(path,
               [](Tensors& t) { t[3].name = "transformer." + t[3].name; });
  refused("query_projection.bias");
  WriteChanged(path, [](Tensors&) {});
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4);
  refused("");
  EXPECT_THROW(LoadWeights(model, folder / "absent.safetensors"), IoError);
  WriteChanged(path, [](Tensors&) {});
  LoadWeights(model, path);
  EXPECT_EQ(model->parameters()[0].abs().max().item<float>(), 0.0f);
}

}  // namespace language_model_test
}  // namespace tarn::nn
