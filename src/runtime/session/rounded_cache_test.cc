// States whose keys and values are rounded: what they hold and weigh, how far
// their logits are from those of float32 ones, files, and what is refused. That
// splits, batches and threads change no bit of them is in bits_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "reference/test_model.h"
#include "runtime/model/model.h"
#include "runtime/session/state_file.h"

namespace tarn::testing {
namespace {

constexpr CacheType kRounded[] = {CacheType::kBF16, CacheType::kInt8};
constexpr int64_t kTokens = 150;

class CacheTest : public ::testing::Test {
 protected:
  CacheTest() {
    config_ = WideConfig();
    SetLayers(config_,
              "full:key_heads=2,linear,full:window=20:key_heads=1,"
              "local:local_context=30,gated-full,mamba2+full,"
              "full:latent_width=37:shared_key_width=6:qkv_bias=false");
    SetRmsSwiglu(config_);
    config_.n_layers = 7;
    FinishConfig(config_);
    WriteModel(folder_.path(), config_, RandomTensors(config_, 1));
    tokens_ = RandomTokens(config_, kTokens, 2);
  }

  Model Open(CacheType cache, int threads = 1) const {
    return Model::Open(folder_.path(), {.threads = threads, .cache = cache})
        .Take();
  }
  State Read(const Model& model) const {
    State state(model);
    model.Prefill(state, tokens_, nullptr);
    return state;
  }
  std::vector<float> Score(const Model& model) const {
    State state(model);
    std::vector<float> logits(
        static_cast<size_t>(kTokens * config_.vocab_size));
    model.Score(state, tokens_, logits.data());
    return logits;
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  std::vector<int32_t> tokens_;
};

// Root mean square of the difference, in parts of that of the logits.
double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  double square = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    square += std::pow(double{a[i]} - b[i], 2);
    size += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(square / size);
}

// Random weights, six layers of softmax. Measured 1.3e-3 (bf16) and 4.6e-3
// (int8); SIMD targets change the last bits of float32 alone.
TEST_F(CacheTest, LogitsAreNearThoseOfFloat32) {
  const std::vector<float> exact = Score(Open(CacheType::kF32));
  const double bf16 = Difference(Score(Open(CacheType::kBF16)), exact);
  const double int8 = Difference(Score(Open(CacheType::kInt8)), exact);
  EXPECT_GT(bf16, 1e-5);
  EXPECT_LT(bf16, 0.005);
  EXPECT_GT(int8, 1e-5);
  EXPECT_LT(int8, 0.02);
}

TEST_F(CacheTest, BytesAreThoseOfTheType) {
  // Of one token in float32: full 2 (34 + 50), gated-full and full 4 (34 + 50)
  // each, latent 43; windows are fixed.
  const Model exact = Open(CacheType::kF32), bf16 = Open(CacheType::kBF16),
              int8 = Open(CacheType::kInt8);
  EXPECT_EQ(4 * (2 * 84 + 2 * 4 * 84 + 43), exact.state_bytes_per_token());
  EXPECT_EQ(4 * (2 * 42 + 2 * 4 * 42 + 22), bf16.state_bytes_per_token());
  // Words of 34 numbers: 9 + 2; of 50: 9 + 6; of 43: 9 + 4.
  EXPECT_EQ(4 * (2 * 26 + 2 * 4 * 26 + 13), int8.state_bytes_per_token());
  // Windows of 20 tokens and one head, of 16 and four.
  const int64_t rest = exact.state_bytes() - 4 * (20 * 84 + 16 * 4 * 84);
  EXPECT_EQ(rest + 4 * (20 * 42 + 16 * 4 * 42), bf16.state_bytes());
  EXPECT_EQ(rest + 4 * (20 * 26 + 16 * 4 * 26), int8.state_bytes());
  for (const Model* model : {&exact, &bf16, &int8}) {
    const State state = Read(*model);
    EXPECT_EQ(0, (state.bytes() - model->state_bytes()) %
                     model->state_bytes_per_token());
    EXPECT_GE(state.bytes(),
              model->state_bytes() + kTokens * model->state_bytes_per_token());
    EXPECT_EQ(state.bytes(), state.Clone().bytes());
  }
}

TEST_F(CacheTest, StatesOfOtherTypesAreNeitherEqualNorCopied) {
  const Model exact = Open(CacheType::kF32);
  State given = Read(exact);
  for (const CacheType type : kRounded) {
    const Model model = Open(type);
    State state = Read(model);
    EXPECT_TRUE(state == state.Clone());
    EXPECT_FALSE(state == given);
    EXPECT_THROW(state.CopyFrom(given), Error);
    EXPECT_FALSE(State(model) == State(exact));  // no token yet
  }
}

TEST_F(CacheTest, FilesKeepTheTypeAndRefuseAnother) {
  const std::string path = folder_ / "a.state";
  for (const CacheType type : kCacheTypes) {
    const Model model = Open(type);
    const State state = Read(model);
    SaveState(model, state, path);
    EXPECT_EQ(StateFileBytes(model, state), std::filesystem::file_size(path));
    Result<State> loaded = LoadState(Open(type, 2), path);
    ASSERT_TRUE(loaded.ok()) << loaded.error().what();
    EXPECT_EQ(state.Hash(), loaded.value().Hash());
    for (const CacheType other : kCacheTypes) {
      if (other == type) continue;
      const Result<State> refused = LoadState(Open(other), path);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(ErrorCode::kFormat, refused.error().code());
      EXPECT_EQ(
          StrCat(path, ": cache: want '", Name(other),
                 "', the type of the model's cache, got '", Name(type), "'"),
          refused.error().what());
    }
  }
}

TEST_F(CacheTest, FilesOfRoundedStatesAreSmaller) {
  const Model exact = Open(CacheType::kF32), int8 = Open(CacheType::kInt8);
  EXPECT_LT(2 * StateFileBytes(int8, Read(int8)),
            StateFileBytes(exact, Read(exact)));
}

// A number that is not finite is no part of a file, in whatever type.
TEST_F(CacheTest, NaNIsNotSaved) {
  Tensors tensors = RandomTensors(config_, 1);
  for (float& x : tensors.at("layers.0.attention.value_projection.weight")) {
    x = std::numeric_limits<float>::quiet_NaN();
  }
  WriteModel(folder_.path(), config_, tensors);
  for (const CacheType type : kCacheTypes) {
    const Model model = Open(type);
    const State state = Read(model);
    try {
      SaveState(model, state, folder_ / "a.state");
      FAIL() << "saved";
    } catch (const Error& error) {
      EXPECT_EQ(ErrorCode::kNumeric, error.code());
      EXPECT_EQ("SaveState: layers.0.values[0]", error.where());
    }
  }
}

// A file whose numbers are not finite after all.
TEST_F(CacheTest, NaNIsNotLoaded) {
  const std::string path = folder_ / "a.state";
  for (const CacheType type : kRounded) {
    const Model model = Open(type);
    SaveState(model, Read(model), path);
    const SafetensorsFile file =
        SafetensorsFile::Open(path, true, SafetensorsTypes::kNumbersAndBytes)
            .Take();
    std::vector<TensorToWrite> all;
    std::vector<std::vector<uint8_t>> copies;
    for (const TensorEntry& entry : file.tensors()) {
      const uint8_t* data = file.Data(entry);
      copies.emplace_back(data, data + (entry.end - entry.begin));
      if (entry.name == "layers.0.keys") {
        std::fill_n(copies.back().begin(), 4, uint8_t{0xFF});
      }
      all.push_back(
          {entry.name, entry.dtype, entry.shape, nullptr, entry.is_bytes});
    }
    for (size_t i = 0; i < all.size(); ++i) all[i].data = copies[i].data();
    WriteSafetensors(path, all, file.metadata());
    const Result<State> refused = LoadState(model, path);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(StrCat(path, ": tensor layers.0.keys[0]"),
              refused.error().where());
  }
}

TEST_F(CacheTest, ModelsWithoutSuchACacheRefuseOtherTypes) {
  for (const char* layers : {"linear", "gdn,aft-simple", "mlstm"}) {
    ModelConfig config = WideConfig();
    SetLayers(config, layers);
    FinishConfig(config);
    WriteModel(folder_.path(), config, RandomTensors(config, 1));
    EXPECT_TRUE(Model::Open(folder_.path(), {.threads = 1}).ok());
    for (const CacheType type : kRounded) {
      try {
        (void)Model::Open(folder_.path(), {.threads = 1, .cache = type});
        FAIL() << "opened " << layers;
      } catch (const Error& error) {
        EXPECT_EQ(ErrorCode::kArgument, error.code());
        EXPECT_EQ("Model::Open: cache", error.where());
        EXPECT_EQ(Name(type), error.given());
      }
    }
  }
}

}  // namespace
}  // namespace tarn::testing
