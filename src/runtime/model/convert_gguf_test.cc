// Models as GGUF files: the same model when they are opened, and exports that
// stop where they can, and continue.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "config/own_key.h"
#include "core/safetensors.h"
#include "reference/random_model.h"
#include "runtime/model/convert.h"
#include "runtime/model/model.h"

namespace tarn {
namespace {

namespace fs = std::filesystem;

class ConvertGguf : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    ModelConfig config;
    config.d_model = 32;
    config.n_layers = 2;
    config.n_heads = 2;
    config.d_ff = 64;
    config.attention = MixerKind("full");
    config.positions = Positions::kRotary;
    config.norm_kind = NormKind::kRms;
    config.feed_forward = FeedForwardOf("swiglu");
    config.head_bias = false;
    SetKey(config, "qkv_bias", false);
    SetKey(config, "out_bias", false);
    FinishConfig(config);
    WriteRandomModel(own_, config, Tokenizer::Byte(), 1);
  }
  void TearDown() override { fs::remove_all(root_); }

  static std::vector<float> Logits(const std::string& path) {
    const Model opened = Model::Open(path, {WeightType::kF32, 1, true}).Take();
    State state(opened);
    const std::vector<int32_t> tokens = {1, 50, 200, 3, 3};
    std::vector<float> logits(tokens.size() *
                              static_cast<size_t>(opened.n_outputs()));
    opened.Score(state, tokens, logits.data());
    return logits;
  }
  // The root mean square of the difference in parts of that of `wanted`.
  static double Difference(const std::vector<float>& given,
                           const std::vector<float>& wanted) {
    EXPECT_EQ(given.size(), wanted.size());
    double error = 0, size = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      error += std::pow(given[i] - wanted[i], 2);
      size += std::pow(wanted[i], 2);
    }
    return std::sqrt(error / size);
  }
  static ErrorCode CodeOf(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kOk;
  }
  size_t FilesIn() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(root_)) {
      count += entry.is_regular_file();
    }
    return count;
  }

  const std::string root_ =
      testing::TempDir() + "/tarn_convert_gguf_" + std::to_string(getpid());
  const std::string own_ = root_ + "/own", out_ = root_ + "/model.gguf";
};

TEST_F(ConvertGguf, OpensAsTheSameModel) {
  const std::vector<float> wanted = Logits(own_);
  const struct {
    const char* numbers;
    double most;  // of the weights' rounding
  } kTypes[] = {{"stored", 0},  {"f32", 0},     {"f16", 1e-3},
                {"bf16", 1e-2}, {"q8_0", 3e-2}, {"q4_0", 0.4}};
  for (const auto& type : kTypes) {
    SCOPED_TRACE(type.numbers);
    ConvertOptions options;
    options.overwrite = true;
    const Converted done = ExportGguf(own_, out_, type.numbers, options);
    EXPECT_EQ(done.model_type, "llama");
    EXPECT_EQ(done.files, std::vector<std::string>{"model.gguf"});
    const double difference = Difference(Logits(out_), wanted);
    EXPECT_LE(difference, type.most);
    EXPECT_EQ(difference == 0, type.most == 0);
    // Without a mapping.
    const Model copied = Model::Open(out_, {WeightType::kF32, 1, false}).Take();
    // Bytes are written as a vocabulary.
    EXPECT_EQ(copied.config().tokenizer, TokenizerKind::kBpe);
  }
  EXPECT_EQ(FilesIn(), 1u);
}

TEST_F(ConvertGguf, IsImportedAndExportedAgain) {
  ExportGguf(own_, out_, "f32", {});
  ImportModel(out_, root_ + "/imported", {});
  EXPECT_EQ(Logits(root_ + "/imported"), Logits(out_));
  ExportGguf(root_ + "/imported", root_ + "/again.gguf", "f32", {});
  EXPECT_EQ(ReadFile(root_ + "/again.gguf", 1 << 24).Take(),
            ReadFile(out_, 1 << 24).Take());
  ExportModel(out_, root_ + "/hf", "", {});
  EXPECT_EQ(Logits(root_ + "/hf"), Logits(out_));
}

TEST_F(ConvertGguf, ContinuesFromEveryReport) {
  ExportGguf(own_, root_ + "/whole.gguf", "q8_0", {});
  const std::string whole = ReadFile(root_ + "/whole.gguf", 1 << 24).Take();
  for (int stop_at = 0, stopped = 1; stopped > 0; ++stop_at) {
    SCOPED_TRACE(stop_at);
    fs::remove(out_);
    ConvertOptions options;
    options.step = 512;
    int calls = 0;
    options.progress = [&](uint64_t done, uint64_t total) {
      EXPECT_LE(done, total);
      return calls++ != stop_at;
    };
    stopped = CodeOf([&] { ExportGguf(own_, out_, "q8_0", options); }) ==
              ErrorCode::kInterrupted;
    if (stopped > 0) {
      EXPECT_FALSE(fs::exists(out_));
      EXPECT_EQ(FilesIn(), 2u);  // the whole one and a partial one
      uint64_t begun = 0;
      options.progress = [&](uint64_t done, uint64_t) {
        if (begun == 0) begun = done;
        return true;
      };
      ExportGguf(own_, out_, "q8_0", options);
    }
    EXPECT_EQ(ReadFile(out_, 1 << 24).Take(), whole);
    EXPECT_EQ(FilesIn(), 2u);
    if (stopped == 0) EXPECT_GT(stop_at, 20);
  }
}

TEST_F(ConvertGguf, RefusesBeforeAnyWork) {
  EXPECT_EQ(CodeOf([&] { ExportGguf(own_, out_, "int3", {}); }),
            ErrorCode::kArgument);
  EXPECT_EQ(CodeOf([&] { ExportGguf(own_, root_, "f32", {}); }),
            ErrorCode::kArgument);
  EXPECT_EQ(CodeOf([&] { ExportGguf(root_ + "/none", out_, "f32", {}); }),
            ErrorCode::kFormat);
  EXPECT_EQ(FilesIn(), 0u);
  ExportGguf(own_, out_, "f32", {});
  const std::string before = ReadFile(out_, 1 << 24).Take();
  EXPECT_EQ(CodeOf([&] { ExportGguf(own_, out_, "q4_0", {}); }),
            ErrorCode::kArgument);
  EXPECT_EQ(CodeOf([&] { ExportGguf(out_, out_, "q4_0", {}); }),
            ErrorCode::kArgument);
  const FileDescriptor other(open(root_.c_str(), O_RDONLY | O_DIRECTORY));
  ASSERT_EQ(flock(other.get(), LOCK_EX), 0);
  ConvertOptions options;
  options.overwrite = true;
  EXPECT_EQ(CodeOf([&] { ExportGguf(own_, out_, "q4_0", options); }),
            ErrorCode::kIo);
  EXPECT_EQ(ReadFile(out_, 1 << 24).Take(), before);
  EXPECT_EQ(FilesIn(), 1u);
}

// Failures leave no partial file.
TEST_F(ConvertGguf, NumbersThatATypeCannotHold) {
  ExportModel(own_, root_ + "/hf", "llama", {});
  const std::string path = root_ + "/hf/model.safetensors";
  std::string bytes = ReadFile(path, 1 << 24).Take();
  {
    const SafetensorsFile file = SafetensorsFile::Open(path).Take();
    const TensorEntry* entry = file.Find("model.layers.1.mlp.up_proj.weight");
    ASSERT_NE(entry, nullptr);
    const float large = 1e6f;
    std::memcpy(bytes.data() + file.data_offset() + entry->begin, &large, 4);
  }
  WriteFileAtomically(path, bytes);
  EXPECT_EQ(CodeOf([&] { ExportGguf(root_ + "/hf", out_, "f16", {}); }),
            ErrorCode::kFormat);
  EXPECT_EQ(FilesIn(), 0u);
  ExportGguf(root_ + "/hf", out_, "bf16", {});
  EXPECT_EQ(FilesIn(), 1u);
}

}  // namespace
}  // namespace tarn
