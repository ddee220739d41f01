#include "runtime/model/verify.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "reference/random_model.h"
#include "runtime/model/files.h"

namespace tarn {
namespace {

class Verify : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir() + "/tarn_verify_" + std::to_string(getpid());
    WriteRandomModel(dir_, TinyConfig(MixerKind("linear")), Tokenizer::Byte(),
                     1);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string dir_;
};

// Writes one tensor of the given 16-bit or 32-bit elements, nothing else.
template <typename T>
void WriteOne(const std::string& dir, DType dtype, const std::vector<T>& data) {
  const std::vector<int64_t> shape{static_cast<int64_t>(data.size())};
  WriteSafetensors(dir + "/model.safetensors",
                   {{"one", dtype, shape, data.data()}}, {});
}

// The report's problems about finiteness.
std::vector<std::string> NotFinite(const std::string& dir) {
  std::vector<std::string> found;
  for (const Error& problem : VerifyModel(dir).problems) {
    if (problem.wanted() == "finite weights") found.push_back(problem.given());
  }
  return found;
}

TEST_F(Verify, CountsASoundModel) {
  const VerifyReport report = VerifyModel(dir_);
  EXPECT_TRUE(report.problems.empty());
  int64_t tensors = 0, elements = 0;
  for (const auto& [name, shape] :
       WeightShapes(TinyConfig(MixerKind("linear")))) {
    ++tensors;
    int64_t product = 1;
    for (const int64_t size : shape) product *= size;
    elements += product;
  }
  EXPECT_EQ(report.tensors, tensors);
  EXPECT_EQ(report.elements, elements);
}

TEST_F(Verify, FindsNonFiniteElementsOfEveryType) {
  const float inf = std::numeric_limits<float>::infinity();
  WriteOne<float>(dir_, DType::kF32, {0, -inf, 1, std::nanf(""), 3e38f});
  EXPECT_EQ(NotFinite(dir_), std::vector<std::string>{
                                 "2 NaN or infinite, the first at element 1"});
  // bf16: the largest finite, +inf. f16: the same, then a NaN.
  WriteOne<uint16_t>(dir_, DType::kBF16, {0x7F7F, 0x7F80});
  EXPECT_EQ(NotFinite(dir_), std::vector<std::string>{
                                 "1 NaN or infinite, the first at element 1"});
  WriteOne<uint16_t>(dir_, DType::kF16, {0x7BFF, 0xFC00, 0x7E01});
  EXPECT_EQ(NotFinite(dir_), std::vector<std::string>{
                                 "2 NaN or infinite, the first at element 1"});
  WriteOne<uint16_t>(dir_, DType::kF16, {0x7BFF, 0xFBFF, 0x8000, 1});
  EXPECT_TRUE(NotFinite(dir_).empty());
}

TEST_F(Verify, ContinuesAfterAFault) {
  WriteFileAtomically(dir_ + "/config.json", "{");
  WriteFileAtomically(dir_ + "/tokenizer.json", "{}");
  WriteOne<float>(dir_, DType::kF32, {std::nanf("")});
  const VerifyReport report = VerifyModel(dir_);
  ASSERT_EQ(report.problems.size(), 3u);
  const char* files[] = {"config.json", "tokenizer.json", "model.safetensors"};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NE(std::string(report.problems[i].what()).find(files[i]),
              std::string::npos);
    EXPECT_EQ(report.problems[i].code(), ErrorCode::kFormat);
  }
}

// Without the configuration it is unknown whether a tokenizer is needed.
TEST_F(Verify, ABadConfigurationWithoutATokenizerIsOneFault) {
  WriteFileAtomically(dir_ + "/config.json", "{\"model_type\": \"llama\"}");
  std::filesystem::remove(dir_ + "/tokenizer.json");
  const VerifyReport report = VerifyModel(dir_);
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_NE(report.problems[0].where().find("config.json"), std::string::npos);
}

// A model of frames has no tokenizer to check, and labels with the blank first.
TEST_F(Verify, ReadsTheLabelsOfFrames) {
  const ModelConfig config = TinyFramesConfig();
  WriteRandomModel(dir_, config, Tokenizer::Byte(), 1);
  std::filesystem::remove(dir_ + "/tokenizer.json");
  EXPECT_TRUE(VerifyModel(dir_).problems.empty());
  const ModelFiles files = OpenModelFiles(dir_, config).Take();
  EXPECT_EQ(files.labels, (std::vector<std::string>{"", "label 1", "label 2"}));
  const std::string deep(100000, '[');
  for (const std::string& bad :
       {std::string("[\"a\",\"b\",\"c\"]"), std::string("[\"\",\"a\"]"),
        std::string("[\"\",\"a\",\"\"]"), std::string("[\"\",\"a\",\"a\"]"),
        std::string("[\"\",\"a\nb\",\"c\"]"), std::string("[null,\"a\",\"b\"]"),
        std::string("[\"\",\"a\",\"\xff\"]"), std::string("{}"), std::string(),
        deep}) {
    WriteFileAtomically(dir_ + "/labels.json", bad);
    const std::vector<Error> problems = VerifyModel(dir_).problems;
    ASSERT_EQ(problems.size(), 1u) << bad.substr(0, 40);
    const std::string text = problems[0].what();
    EXPECT_EQ(problems[0].code(), ErrorCode::kFormat) << text;
    EXPECT_NE(text.find(dir_ + "/labels.json"), std::string::npos) << text;
    EXPECT_LT(text.size(), 500u);
    EXPECT_FALSE(OpenModelFiles(dir_, config).ok()) << text;
  }
  std::filesystem::remove(dir_ + "/labels.json");
  ASSERT_EQ(VerifyModel(dir_).problems.size(), 1u);
  EXPECT_EQ(VerifyModel(dir_).problems[0].code(), ErrorCode::kIo);
}

TEST_F(Verify, NoDirectoryIsThreeFaults) {
  EXPECT_EQ(VerifyModel(dir_ + "/absent").problems.size(), 3u);
}

}  // namespace
}  // namespace tarn
