// What Model::Open refuses, and in which words.
#include <gtest/gtest.h>

#include <cstring>

#include "core/feature_map.h"
#include "reference/test_model.h"
#include "runtime/model/model.h"

namespace tarn::testing {
namespace {

class ModelOpenTest : public ::testing::Test {
 protected:
  ModelOpenTest()
      : config_(SmallConfig()), tensors_(RandomTensors(config_, 1)) {
    WriteModel(folder_.path(), config_, tensors_);
  }
  void WriteConfig(const ModelConfig& config) {
    WriteFileAtomically(folder_ / "config.json", ConfigToJson(config));
  }
  // The error has the code and one line that holds all the parts.
  void ExpectRefused(ErrorCode code, const std::vector<std::string>& parts) {
    for (const bool use_mmap : {true, false}) {
      const Result<Model> model =
          Model::Open(folder_.path(), {.use_mmap = use_mmap});
      ASSERT_FALSE(model.ok());
      const std::string text = model.error().what();
      EXPECT_EQ(code, model.error().code()) << text;
      EXPECT_FALSE(Contains(text, "\n")) << text;
      for (const std::string& part : parts) {
        EXPECT_TRUE(Contains(text, part)) << "'" << part << "' in: " << text;
      }
    }
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  Tensors tensors_;
};

TEST_F(ModelOpenTest, OpensWhatItShould) {
  EXPECT_TRUE(Model::Open(folder_.path()).ok());
  EXPECT_THROW(Model::Open(folder_.path(), {.threads = -1}).ok(),
               ArgumentError);
}

// Nothing is rounded, and every number of a result is that of float32.
TEST_F(ModelOpenTest, SixteenBitFilesStaySo) {
  std::vector<TensorToWrite> list;
  std::map<std::string, std::vector<uint16_t>> held;
  Tensors widened = tensors_;
  for (const auto& [name, shape] : WeightShapes(config_)) {
    for (float& x : widened[name]) {
      uint32_t bits;
      std::memcpy(&bits, &x, 4);
      bits &= 0xFFFF0000u;
      std::memcpy(&x, &bits, 4);
      held[name].push_back(static_cast<uint16_t>(bits >> 16));
    }
    list.push_back({name, DType::kBF16, shape, held[name].data()});
  }
  const auto tokens = RandomTokens(config_, 9, 1);
  const auto score = [&](const Model& model) {
    State state(model);
    std::vector<float> logits(tokens.size() * 29);
    model.Score(state, tokens, logits.data());
    for (const int32_t token : tokens) {
      logits.resize(logits.size() + 29);
      model.Step(state, token, &*logits.end() - 29);
    }
    return logits;
  };
  const auto open = [&](WeightType type) {
    return Model::Open(folder_.path(), {.weights = type}).Take();
  };
  WriteTensors(folder_.path(), config_, widened);
  const std::vector<float> want = score(open(WeightType::kAuto));
  const int64_t bytes = open(WeightType::kAuto).weight_bytes();
  WriteSafetensors(folder_ / "model.safetensors", list, {});
  EXPECT_EQ(want, score(open(WeightType::kF32)));
  for (const WeightType type : {WeightType::kAuto, WeightType::kBF16}) {
    const Model model = open(type);
    EXPECT_EQ(want, score(model));
    EXPECT_LT(model.weight_bytes(), bytes * 2 / 3);
    for (const auto& [format, numbers] : model.weight_formats()) {
      EXPECT_STREQ("bf16", format->name);
    }
  }
}

TEST_F(ModelOpenTest, MissingFiles) {
  std::filesystem::remove(folder_ / "model.safetensors");
  ExpectRefused(ErrorCode::kIo, {"model.safetensors"});
  std::filesystem::remove(folder_ / "config.json");
  ExpectRefused(ErrorCode::kIo, {"config.json"});
}

TEST_F(ModelOpenTest, BadConfig) {
  WriteFileAtomically(folder_ / "config.json", "{\"vocab_size\": ");
  ExpectRefused(ErrorCode::kFormat, {folder_.path(), "config.json"});
}

TEST_F(ModelOpenTest, MissingTensorsAreListed) {
  tensors_.erase("norm.bias");
  tensors_.erase("layers.1.linear2.weight");
  WriteTensors(folder_.path(), config_, tensors_);
  ExpectRefused(ErrorCode::kFormat,
                {folder_ / "model.safetensors", "without 2 of",
                 "layers.1.linear2.weight", "norm.bias"});
  for (int i = 0; i < 2; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".attention.";
    for (const char* name : {"query", "key", "value", "out"}) {
      tensors_.erase(layer + name + "_projection.weight");
    }
  }
  WriteTensors(folder_.path(), config_, tensors_);
  ExpectRefused(ErrorCode::kFormat, {"without 10 of", ", ..."});
}

TEST_F(ModelOpenTest, ExtraTensor) {
  tensors_["surplus"] = {1.0f, 2.0f};
  WriteTensors(folder_.path(), config_, tensors_, {{"surplus", {2}}});
  ExpectRefused(ErrorCode::kFormat,
                {"model.safetensors", "'surplus'", "at byte "});
}

TEST_F(ModelOpenTest, WrongShape) {
  tensors_["layers.0.linear1.weight"].resize(22 * 36);
  WriteTensors(folder_.path(), config_, tensors_,
               {{"layers.0.linear1.weight", {36, 22}}});
  ExpectRefused(ErrorCode::kFormat,
                {"model.safetensors", "'layers.0.linear1.weight'", "at byte ",
                 "[37, 22]", "[36, 22]"});
}

TEST_F(ModelOpenTest, TransposedShape) {
  WriteTensors(folder_.path(), config_, tensors_,
               {{"layers.0.linear1.weight", {22, 37}}});
  ExpectRefused(ErrorCode::kFormat, {"[37, 22]", "[22, 37]"});
}

TEST_F(ModelOpenTest, GiantClaimsCostNothing) {
  ModelConfig giant = config_;
  giant.d_ff = int64_t{1} << 20;
  WriteConfig(giant);
  ExpectRefused(ErrorCode::kFormat, {"linear1", "[1048576"});
  giant = config_;
  giant.n_layers = 4096;
  WriteConfig(giant);
  ExpectRefused(ErrorCode::kFormat, {"n_layers = 4096"});
}

// Few outputs are padded to a panel: 64 times the file would be 1.3 GB here.
TEST_F(ModelOpenTest, PaddingIsBoundedByTheFile) {
  ModelConfig narrow = config_;
  narrow.d_model = 1;
  narrow.n_heads = 1;
  narrow.d_key = narrow.d_value = 1;
  narrow.n_layers = 1;
  narrow.vocab_size = 2;
  narrow.d_ff = 1 << 20;
  FinishConfig(narrow);
  WriteModel(folder_.path(), narrow, RandomTensors(narrow, 1));
  ExpectRefused(ErrorCode::kFormat, {"8-fold"});
}

// The refusal comes before the weights are read: they are a decoder's here.
TEST_F(ModelOpenTest, WhatItCannotRunIsNamed) {
  const auto refused = [&](auto change, const std::string& key,
                           const std::string& value) {
    ModelConfig other = config_;
    change(other);
    WriteConfig(other);
    ExpectRefused(ErrorCode::kFormat, {"config.json: " + key, value});
  };
  refused([](ModelConfig& c) { c.arch = Arch::kLstm, c.task = Task::kLm; },
          "arch", "lstm");
  refused([](ModelConfig& c) { c.attention = MixerKind("reformer"); },
          "attention", "reformer");
  refused(
      [](ModelConfig& c) {
        c.attention = MixerKind("linear");
        SetKey(c, "feature_map", FeatureMap::kFavor);
      },
      "feature_map", "favor");
  refused(
      [](ModelConfig& c) {
        SetKey(c, "feature_map", FeatureMap::kSmoothedRff);
      },
      "feature_map", "smoothed-rff");
  refused(
      [](ModelConfig& c) {
        c.arch = Arch::kSeq2seq;
        c.task = Task::kSeq2seq;
        c.attention = MixerKind("exact-topk");
      },
      "attention", "exact-topk");
  refused(
      [](ModelConfig& c) {
        c.arch = Arch::kCnn;
        c.task = Task::kClassify;
        c.n_classes = 2;
      },
      "arch", "cnn");
  refused(
      [](ModelConfig& c) {
        c.arch = Arch::kEncoder;
        c.task = Task::kCtc;
        c.n_classes = 2;
        c.input_dim = 1;
        c.tied_head = false;
      },
      "task", "ctc");
}

}  // namespace
}  // namespace tarn::testing
