// Conversions that stop at every point where they can, and continue.
#include "runtime/model/convert.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>

#include "config/own_key.h"
#include "reference/random_model.h"

namespace tarn {
namespace {

constexpr uint64_t kStep = 512;

class Convert : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(root_);
    ModelConfig config;
    config.d_model = 16;
    config.n_layers = 2;
    config.n_heads = 2;
    config.d_ff = 24;
    config.attention = MixerKind("full");
    config.positions = Positions::kRotary;
    config.norm_kind = NormKind::kRms;
    config.feed_forward = FeedForwardOf("swiglu");
    config.head_bias = false;
    SetKey(config, "qkv_bias", false);
    SetKey(config, "out_bias", false);
    FinishConfig(config);
    WriteRandomModel(root_ + "/own", config, Tokenizer::Byte(), 1);
    ExportModel(root_ + "/own", from_, "llama", {});
    WriteFileAtomically(from_ + "/chat_template.jinja", "{{ messages }}");
    ImportModel(from_, root_ + "/whole", {});
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  static std::map<std::string, std::string> Contents(const std::string& dir) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(dir)) {
      files[entry.path().filename().string()] =
          ReadFile(entry.path().string(), 1 << 20).Take();
    }
    return files;
  }

  // Stops at the progress report with this number; where the conversion began.
  uint64_t Import(int stop_at, StoredWeights stored = StoredWeights::kAsTheyAre,
                  const std::function<void()>& stop = nullptr) {
    ConvertOptions options;
    options.stored = stored;
    options.step = kStep;
    int calls = 0;
    uint64_t first = 0;
    options.progress = [&](uint64_t done, uint64_t total) {
      EXPECT_LE(done, total);
      if (calls == 0) first = done;
      if (calls++ != stop_at) return true;
      if (stop) stop();
      return false;
    };
    try {
      ImportModel(from_, out_, options);
      EXPECT_EQ(stop_at, -1);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInterrupted) << error.what();
      EXPECT_NE(stop_at, -1);
    }
    return first;
  }

  int Reports() {
    ConvertOptions options;
    int calls = 0;
    options.progress = [&](uint64_t, uint64_t) { return ++calls > 0; };
    ImportModel(from_, root_ + "/counted", options);
    return calls;
  }

  const std::string root_ =
      testing::TempDir() + "/tarn_convert_" + std::to_string(getpid());
  const std::string from_ = root_ + "/published", out_ = root_ + "/out";
};

TEST_F(Convert, ContinuesFromEveryReport) {
  const auto whole = Contents(root_ + "/whole");
  const int reports = Reports();
  ASSERT_GT(reports, 20);
  for (int stop_at = 0; stop_at < reports; ++stop_at) {
    SCOPED_TRACE(stop_at);
    std::filesystem::remove_all(out_);
    EXPECT_EQ(Import(stop_at), 0u);
    for (const auto& [name, contents] : Contents(out_)) {
      EXPECT_NE(name.find(".partial-"), std::string::npos) << name;
    }
    const uint64_t begun = Import(-1);
    // All but the last step and the header.
    if (stop_at == reports - 1) {
      EXPECT_GT(begun, 4000u);
    }
    EXPECT_EQ(Contents(out_), whole);
  }
}

// Again and again, a report further each time.
TEST_F(Convert, ContinuesWhatContinued) {
  uint64_t last = 0;
  int moved = 0;
  for (int runs = 0; runs < 12; ++runs) {
    const uint64_t first = Import(2);
    EXPECT_GE(first, last);
    moved += first > last;
    last = first;
  }
  EXPECT_GT(moved, 5);
  Import(-1);
  EXPECT_EQ(Contents(out_), Contents(root_ + "/whole"));
}

TEST_F(Convert, AKilledProcessIsContinued) {
  const pid_t child = fork();
  if (child == 0) {
    Import(9, StoredWeights::kAsTheyAre, [] { raise(SIGKILL); });
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  // What a process that is killed at its end leaves besides.
  WriteFileAtomically(out_ + "/chat_template.jinja.tmp-1-0", "half");
  EXPECT_GT(Import(-1), 0u);
  EXPECT_EQ(Contents(out_), Contents(root_ + "/whole"));
}

TEST_F(Convert, KilledBetweenTheNamesOfItsFiles) {
  Import(3);
  WriteFileAtomically(out_ + "/model.safetensors",
                      Contents(root_ + "/whole")["model.safetensors"]);
  Import(-1);  // no model, so that --overwrite is not asked for
  EXPECT_EQ(Contents(out_), Contents(root_ + "/whole"));
}

TEST_F(Convert, OtherSourcesAndArgumentsBeginAgain) {
  Import(9);
  EXPECT_EQ(Import(-1, StoredWeights::kBF16), 0u);
  // The partial files of the first went with it.
  EXPECT_EQ(Contents(out_).size(), Contents(root_ + "/whole").size());
  std::filesystem::remove_all(out_);
  Import(9);
  const std::string path = from_ + "/model.safetensors";
  std::string weights = ReadFile(path, 1 << 20).Take();
  weights.back() ^= 1;
  WriteFileAtomically(path, weights);
  EXPECT_EQ(Import(-1), 0u);
  std::filesystem::remove_all(root_ + "/whole");
  ImportModel(from_, root_ + "/whole", {});
  EXPECT_EQ(Contents(out_), Contents(root_ + "/whole"));
}

TEST_F(Convert, ExportsContinueToo) {
  ConvertOptions options;
  options.step = kStep;
  int calls = 0;
  options.progress = [&](uint64_t, uint64_t) { return ++calls < 9; };
  EXPECT_THROW(ExportModel(root_ + "/own", out_, "llama", options), Error);
  uint64_t first = 0;
  calls = 0;
  options.progress = [&](uint64_t done, uint64_t) {
    if (calls++ == 0) first = done;
    return true;
  };
  ExportModel(root_ + "/own", out_, "llama", options);
  EXPECT_GT(first, 0u);
  auto wanted = Contents(from_);
  wanted.erase("chat_template.jinja");
  EXPECT_EQ(Contents(out_), wanted);
}

TEST_F(Convert, OneAtATime) {
  Import(3);
  const FileDescriptor folder(
      open(out_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(flock(folder.get(), LOCK_EX | LOCK_NB), 0);
  try {
    ImportModel(from_, out_, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(std::string(error.what()).find("no other import"),
              std::string::npos);
  }
}

TEST_F(Convert, AFailureLeavesNothing) {
  ConvertOptions options;
  options.progress = [&](uint64_t done, uint64_t) -> bool {
    if (done > 0) throw IoError("disk", "space", "none");
    return true;
  };
  EXPECT_THROW(ImportModel(from_, out_, options), IoError);
  EXPECT_TRUE(Contents(out_).empty());
}

}  // namespace
}  // namespace tarn
