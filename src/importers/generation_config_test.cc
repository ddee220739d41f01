// generation_config.json: what is read of it, and what is refused.
#include "importers/generation_config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tarn {
namespace {

class GenerationFile : public testing::Test {
 protected:
  GenerationFile()
      : dir_(std::filesystem::path(testing::TempDir()) /
             ("tarn_generation_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(dir_);
    Write("config.json", R"({"model_type": "llama", "eos_token_id": [9, 2]})");
  }
  ~GenerationFile() override { std::filesystem::remove_all(dir_); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name) << text;
  }
  PublishedGeneration Read(const std::string& text) {
    Write("generation_config.json", text);
    return ReadGenerationConfig(dir_).Take();
  }
  std::filesystem::path dir_;
};

using Ids = std::vector<int32_t>;

TEST_F(GenerationFile, StopTokensComeFromItOrFromTheConfiguration) {
  EXPECT_EQ(ReadGenerationConfig(dir_).Take().stop_tokens, (Ids{2, 9}));
  EXPECT_EQ(Read("{}").stop_tokens, (Ids{2, 9}));
  EXPECT_EQ(Read(R"({"eos_token_id": null})").stop_tokens, (Ids{2, 9}));
  EXPECT_EQ(Read(R"({"eos_token_id": 4})").stop_tokens, Ids{4});
  EXPECT_EQ(Read(R"({"eos_token_id": [7, 3, 7]})").stop_tokens, (Ids{3, 7}));
  EXPECT_EQ(Read(R"({"eos_token_id": []})").stop_tokens, Ids{});
  EXPECT_EQ(Read(R"({"eos_token_id": -1})").stop_tokens, Ids{});
  Write("config.json",
        R"({"model_type": "x", "text_config": {"eos_token_id": 5}})");
  EXPECT_EQ(Read("{}").stop_tokens, Ids{5});
  Write("config.json", R"({"format_version": 1, "eos_token_id": 5})");
  EXPECT_EQ(Read("{}").stop_tokens, Ids{});
}

TEST_F(GenerationFile, SamplingCountsWithDoSampleAlone) {
  EXPECT_FALSE(Read(R"({"temperature": 0.6})").sampling);
  EXPECT_FALSE(Read(R"({"do_sample": false, "top_k": 3})").sampling);
  const PublishedSampling plain = *Read(R"({"do_sample": true})").sampling;
  EXPECT_EQ(plain.temperature, 1.0);
  EXPECT_EQ(plain.top_k, 50);
  EXPECT_EQ(plain.top_p, 1.0);
  EXPECT_EQ(plain.min_p, 0.0);
  EXPECT_EQ(plain.typical_p, 1.0);
  EXPECT_EQ(plain.repetition_penalty, 1.0);
  const PublishedSampling given =
      *Read(R"({"do_sample": true, "temperature": 0.6, "top_k": 20,
                "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.1,
                "typical_p": 0.9})")
           .sampling;
  EXPECT_EQ(given.temperature, 0.6);
  EXPECT_EQ(given.top_k, 20);
  EXPECT_EQ(given.top_p, 0.95);
  EXPECT_EQ(given.min_p, 0.1);
  EXPECT_EQ(given.typical_p, 0.9);
  EXPECT_EQ(given.repetition_penalty, 1.1);
}

TEST_F(GenerationFile, FaultsNameTheKey) {
  std::string many = "0";
  for (size_t i = 0; i < kMaxPublishedStopTokens; ++i) many += ",0";
  for (const auto& [text, part] :
       std::vector<std::pair<std::string, std::string>>{
           {"[]", "an object"},
           {"{", "generation_config.json"},
           {R"({"eos_token_id": "x"})", "eos_token_id"},
           {R"({"eos_token_id": true})", "eos_token_id"},
           {R"({"eos_token_id": 0.5})", "eos_token_id"},
           {R"({"eos_token_id": -2})", "eos_token_id"},
           {R"({"eos_token_id": 3000000000})", "eos_token_id"},
           {R"({"eos_token_id": [[1]]})", "eos_token_id"},
           {R"({"eos_token_id": [)" + many + "]}", "at most 1024"},
           {R"({"do_sample": 1})", "do_sample"},
           {R"({"do_sample": true, "temperature": -1})", "temperature"},
           {R"({"do_sample": true, "temperature": "hot"})", "temperature"},
           {R"({"do_sample": true, "top_k": -1})", "top_k"},
           {R"({"do_sample": true, "top_k": 1.5})", "top_k"},
           {R"({"do_sample": true, "top_p": 0})", "top_p"},
           {R"({"do_sample": true, "top_p": 1.5})", "top_p"},
           {R"({"do_sample": true, "typical_p": 0})", "typical_p"},
           {R"({"do_sample": true, "typical_p": 1.01})", "typical_p"},
           {R"({"do_sample": true, "repetition_penalty": 0})",
            "repetition_penalty"},
           {R"({"do_sample": true, "repetition_penalty": 11})",
            "repetition_penalty"},
           {R"({"do_sample": true, "repetition_penalty": 1e-300})",
            "repetition_penalty"},
           {R"({"do_sample": true, "min_p": 2})", "min_p"}}) {
    Write("generation_config.json", text);
    const auto read = ReadGenerationConfig(dir_);
    ASSERT_FALSE(read.ok()) << text;
    const std::string message = read.error().what();
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  Write("generation_config.json", std::string((1 << 20) + 1, ' '));
  EXPECT_FALSE(ReadGenerationConfig(dir_).ok());
}

}  // namespace
}  // namespace tarn
