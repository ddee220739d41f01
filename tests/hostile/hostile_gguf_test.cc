// Mutates what precedes the data of one small GGUF file of each architecture
// (tests/golden/gguf_headers) and gives the files to the runtime and to the
// program: each opens and can be used, or is refused in one line, in bounded
// memory and without a signal or a sanitizer's report.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "allocation_count.h"
#include "cli/cli.h"
#include "core/file.h"
#include "core/rng.h"
#include "importers/gguf/architecture.h"
#include "runtime/model/convert.h"
#include "runtime/model/verify.h"
#include "runtime/session/loaded_model.h"
#include "text/template/chat_format.h"
#include "weights/gguf/gguf_file.h"

namespace tarn {
namespace {

namespace fs = std::filesystem;

constexpr bool kAll = TARN_MUTATIONS > 1000;
// What opening and using a mutant may take, freed or not.
constexpr int64_t kMostBytes = 64 << 20;

struct Original {
  std::string header, file;  // the header, and with the data
};

std::string BytesOf(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

// By names of architectures.
std::map<std::string, Original> Originals() {
  std::map<std::string, Original> all;
  for (const auto& entry : fs::directory_iterator(TARN_GGUF_HEADERS)) {
    const auto root =
        nlohmann::json::parse(ReadFile(entry.path(), 1 << 22).Take());
    Original original;
    original.header = BytesOf(root.at("header"));
    original.file = original.header + BytesOf(root.value("data_begin", ""));
    const size_t end =
        original.header.size() + root.at("data_bytes").get<size_t>();
    Rng rng(3);
    while (original.file.size() < end) {
      // Below 0: so are the rates of recurrences.
      const float number = -static_cast<float>(1 + rng.Below(500)) / 1000;
      original.file.append(reinterpret_cast<const char*>(&number), 4);
    }
    all.emplace(entry.path().stem().string(), std::move(original));
  }
  return all;
}

class HostileGguf : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) /
            ("tarn_hostile_gguf_" + std::to_string(getpid()));
    fs::create_directories(root_);
    path_ = root_ / "model.gguf";
    originals_ = Originals();
  }
  void TearDown() override { fs::remove_all(root_); }

  void Put(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
  }

  // Opens the file and uses it; whether that succeeds. A refusal has one line.
  bool Use() const {
    const int64_t before = testing::AllocatedBytes();
    const bool used = UseModel();
    EXPECT_LT(testing::AllocatedBytes() - before, kMostBytes);
    return used;
  }

  fs::path root_;
  std::string path_;
  std::map<std::string, Original> originals_;
  mutable std::string last_;  // what the last refusal said

 private:
  void ExpectLine(const Error& error) const {
    last_ = error.what();
    EXPECT_TRUE(error.code() == ErrorCode::kFormat ||
                error.code() == ErrorCode::kNumeric)
        << last_;
    EXPECT_TRUE(last_.find_first_of("\n\r") == std::string::npos &&
                last_.size() < 4000)
        << last_;
    EXPECT_NE(last_.find(path_), std::string::npos) << last_;
  }
  // Texts that vocabularies of the headers know, and ids that have none.
  void UseTexts(const Tokenizer& tokenizer, const ModelPath& path) const {
    EncodeOptions options;
    options.allow_special = options.add_special = true;
    for (const char* text : {"abc ab", "A<x>\xFF <s>", "0 1 2"}) {
      const auto ids = tokenizer.Encode(text, options);
      if (ids.ok()) tokenizer.DecodeText(ids.value(), false);
    }
    for (int32_t id = 0; id < std::min<int64_t>(tokenizer.vocab_size(), 20);
         ++id) {
      std::string text;
      tokenizer.Decode(id, text);
    }
    const auto format = ChatFormat::Open(path);
    if (!format.ok()) ExpectLine(format.error());
  }
  bool UseModel() const {
    const ModelPath path(path_);
    const VerifyReport report = VerifyModel(path);
    for (const Error& error : report.problems) ExpectLine(error);
    const Result<LoadedModel> opened =
        LoadedModel::Open(path, {WeightType::kF32, 1, true});
    if (!opened.ok()) {
      ExpectLine(opened.error());
      EXPECT_FALSE(report.problems.empty()) << last_;
      return false;
    }
    const Model& model = opened.value().model;
    State state(model);
    const std::vector<int32_t> tokens = {0, 1, 2};
    std::vector<float> logits(static_cast<size_t>(model.n_outputs()));
    model.Prefill(state, tokens, logits.data());
    UseTexts(opened.value().tokenizer, path);
    return true;
  }
};

TEST_F(HostileGguf, EveryArchitectureHasAFileThatWorks) {
  for (const GgufArchitecture& row : GgufArchitectures()) {
    EXPECT_TRUE(originals_.contains(row.name)) << row.name;
  }
  for (const auto& [name, original] : originals_) {
    SCOPED_TRACE(name);
    Put(original.file);
    EXPECT_TRUE(Use()) << last_;
  }
}

TEST_F(HostileGguf, EveryByteBeforeTheData) {
  int refused = 0, used = 0;
  // In a plain build some bytes, others of each architecture.
  size_t all = 0;
  for (const auto& [name, original] : originals_) all += original.header.size();
  const size_t step = kAll ? 1 : 1 + all / (2 * TARN_MUTATIONS);
  size_t first = 0;
  for (const auto& [name, original] : originals_) {
    Rng rng(11);
    for (size_t at = first++ % step; at < original.header.size(); at += step) {
      const auto old = static_cast<uint8_t>(original.header[at]);
      const uint8_t values[] = {static_cast<uint8_t>(old ^ 1 << rng.Below(8)),
                                static_cast<uint8_t>(rng.Below(256)), 0xFF};
      const uint8_t value = values[at % std::size(values)];
      SCOPED_TRACE(::testing::Message()
                   << name << ", byte " << at << ": " << int{value});
      std::string bytes = original.file;
      bytes[at] = static_cast<char>(value);
      Put(bytes);
      (Use() ? used : refused) += 1;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(refused, 50);
  EXPECT_GT(used, 10);
}

// Lengths and counts, all aligned or not, that ask for a lot.
TEST_F(HostileGguf, GiantNumbers) {
  constexpr uint64_t kGiants[] = {0,
                                  1,
                                  0xFFFF'FFFF,
                                  uint64_t{1} << 31,
                                  uint64_t{1} << 40,
                                  uint64_t{1} << 63,
                                  ~uint64_t{0} - 31,
                                  ~uint64_t{0}};
  Rng rng(13);
  const int rounds = kAll ? 4000 : 200;
  for (int i = 0; i < rounds && !HasFailure(); ++i) {
    auto original = originals_.begin();
    std::advance(original, static_cast<int64_t>(rng.Below(originals_.size())));
    std::string bytes = original->second.file;
    const size_t at = rng.Below(original->second.header.size() - 8);
    const uint64_t giant = kGiants[rng.Below(std::size(kGiants))];
    const size_t width = rng.Below(2) == 0 ? 4 : 8;
    std::memcpy(bytes.data() + at, &giant, width);
    if (rng.Below(4) == 0) bytes.resize(rng.Below(bytes.size()));
    SCOPED_TRACE(::testing::Message() << original->first << ", " << width
                                      << " bytes at " << at << ": " << giant);
    Put(bytes);
    Use();
  }
}

// The program refuses a file with exit code 3.
TEST_F(HostileGguf, ExitCodes) {
  const auto run = [&](std::vector<std::string> arguments) {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = cli::Main(static_cast<int>(arguments.size()), argv.data());
    const std::string out = ::testing::internal::GetCapturedStdout();
    const std::string errors = ::testing::internal::GetCapturedStderr();
    last_ = arguments[1] == "verify" ? out : errors;
    return code;
  };
  const std::string& good = originals_.begin()->second.file;
  for (const size_t size : {size_t{0}, size_t{3}, size_t{4}, size_t{23},
                            good.size() / 2, good.size() - 1}) {
    Put(good.substr(0, size));
    const std::string out = (root_ / "out").string();
    for (const auto& arguments : std::vector<std::vector<std::string>>{
             {"tarn", "verify", path_},
             {"tarn", "info", path_},
             {"tarn", "generate", path_, "--prompt", "1", "--max-tokens", "1"},
             {"tarn", "bench", path_},
             {"tarn", "import", path_, "--out", out},
             {"tarn", "export", path_, "--to", "gguf", "--out", out}}) {
      EXPECT_EQ(run(arguments), 3) << arguments[1] << size << ": " << last_;
      EXPECT_GE(std::count(last_.begin(), last_.end(), '\n'), 1) << last_;
      EXPECT_LE(std::count(last_.begin(), last_.end(), '\n'),
                arguments[1] == "verify" ? 4 : 1)
          << last_;
    }
    EXPECT_FALSE(fs::exists(out));
  }
}

}  // namespace
}  // namespace tarn
