// Mutates the files of a small real model and opens what comes out. Each must
// be refused in one line or give a working model, in bounded memory; a signal,
// a leak or a sanitizer's report fails the test.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "allocation_count.h"
#include "core/file.h"
#include "hostile/mutator.h"
#include "reference/random_model.h"
#include "runtime/model/model.h"
#include "runtime/model/verify.h"
#include "runtime/quantise/quantise.h"
#include "runtime/session/state_file.h"
#include "text/tokenizer.h"

namespace tarn {
namespace {

constexpr int kMutations = 2000;
// What opening one directory may take from the C library, freed or not: most
// take one or two MB.
constexpr int64_t kMostBytes = 16 << 20;

// The files of a model, in memory; labels are those of a classifier.
struct Files {
  std::string config, tokenizer, weights, labels;
};
constexpr const char* kNames[] = {"config.json", "tokenizer.json",
                                  "model.safetensors"};
constexpr const char* kLabels = "labels.json";

struct Outcome {
  int refused = 0, working = 0, sound = 0;
};

class HostileModel : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(::testing::TempDir()) /
            ("tarn_hostile_" + std::to_string(getpid()));
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  Files WriteAndRead(const ModelConfig& config, const Tokenizer& tokenizer) {
    WriteRandomModel(root_ / "good", config, tokenizer, 1);
    const auto read = [&](const char* name) {
      return ReadFile((root_ / "good" / name).string(), 1 << 20).Take();
    };
    Files files = {read(kNames[0]), read(kNames[1]), read(kNames[2]), ""};
    if (config.task == Task::kClassify) files.labels = read(kLabels);
    return files;
  }

  std::string Put(const Files& files) {
    const std::filesystem::path dir = root_ / "mutant";
    std::filesystem::create_directories(dir);
    const auto put = [&](const char* name, const std::string& contents) {
      std::FILE* file = std::fopen((dir / name).c_str(), "wb");
      EXPECT_NE(file, nullptr);
      EXPECT_EQ(std::fwrite(contents.data(), 1, contents.size(), file),
                contents.size());
      std::fclose(file);
    };
    put(kNames[0], files.config);
    put(kNames[1], files.tokenizer);
    put(kNames[2], files.weights);
    put(kLabels, files.labels);
    return dir;
  }

  // Opens a directory in every way there is and counts what became of it.
  void Try(const std::string& dir, Outcome& outcome) {
    const int64_t before = testing::AllocatedBytes();
    const VerifyReport report = VerifyModel(dir);
    for (const Error& problem : report.problems) ExpectOneLine(problem);
    ModelOptions options;
    options.threads = 1;
    Result<Model> model = Model::Open(dir, options);
    if (!model.ok()) {
      ExpectOneLine(model.error());
      EXPECT_FALSE(report.problems.empty())
          << "verify found nothing, but: " << model.error().what();
      ++outcome.refused;
    } else {
      UseModel(dir, model.value(), report, outcome);
    }
    EXPECT_LT(testing::AllocatedBytes() - before, kMostBytes);
  }

  void UseModel(const std::string& dir, const Model& model,
                const VerifyReport& report, Outcome& outcome) {
    const Result<Tokenizer> tokenizer = Tokenizer::Open(dir, model.config());
    if (!tokenizer.ok()) {
      ExpectOneLine(tokenizer.error());
      ++outcome.refused;
      return;
    }
    ++outcome.working;
    outcome.sound += report.problems.empty();
    const std::vector<int32_t> tokens{0, 0, 0};
    std::vector<float> logits(static_cast<size_t>(model.config().Outputs()));
    if (model.config().arch == Arch::kEncoder) {
      EXPECT_EQ(model.labels().size(), logits.size());
      return model.Classify(tokens, logits.data());
    }
    State state = model.config().arch == Arch::kSeq2seq ? model.Encode(tokens)
                                                        : State(model);
    model.Prefill(state, tokens, logits.data());
    model.Step(state, 0, logits.data());
    EXPECT_EQ(state.position(), 4);
  }

  static void ExpectOneLine(const Error& error) {
    const std::string text = error.what();
    EXPECT_TRUE(error.code() == ErrorCode::kFormat ||
                error.code() == ErrorCode::kIo)
        << static_cast<int>(error.code()) << " " << text;
    EXPECT_LT(text.size(), 2000u);
    for (const char c : text) {
      EXPECT_TRUE(c >= 0x20 && c < 0x7F) << text;
      if (c < 0x20) break;
    }
  }

  std::filesystem::path root_;
};

TEST_F(HostileModel, TwoThousandMutations) {
  ModelConfig chars = TinyConfig(MixerKind("full"));
  chars.vocab_size = 5;
  chars.tokenizer = TokenizerKind::kChar;
  ModelConfig ids = TinyConfig(MixerKind("linear"));
  ids.vocab_size = 7;
  ids.tokenizer = TokenizerKind::kIds;
  const std::vector<Files> originals{
      WriteAndRead(TinyConfig(MixerKind("linear")), Tokenizer::Byte()),
      WriteAndRead(chars, Tokenizer::Char({10, 32, 'a', 'b', 0x1F600})),
      WriteAndRead(TinyConfig(Arch::kSeq2seq), Tokenizer::Byte()),
      WriteAndRead(TinyConfig(Arch::kEncoder), Tokenizer::Byte()),
      WriteAndRead(ids, Tokenizer::Ids(7))};
  Mutator mutator(20);
  Outcome outcome;
  for (int i = 0; i < kMutations && !HasFailure(); ++i) {
    SCOPED_TRACE(::testing::Message() << "mutation " << i);
    Files files = originals[static_cast<size_t>(i) % originals.size()];
    // Half of them the weight file, a quarter each of the others.
    std::string* targets[] = {
        &files.weights, &files.weights, &files.config,
        files.labels.empty() ? &files.tokenizer : &files.labels};
    mutator.Mutate(*targets[mutator.Below(4)]);
    Try(Put(files), outcome);
  }
  RecordProperty("refused", outcome.refused);
  RecordProperty("working", outcome.working);
  EXPECT_EQ(outcome.refused + outcome.working, kMutations);
  // The mutations do reach both ends: most are refused; some, such as a bit of
  // a weight, leave a model that runs.
  EXPECT_GT(outcome.refused, kMutations / 2);
  EXPECT_GT(outcome.working, kMutations / 50);
}

// The same for weights in groups: the note of their schemes, codes and scales.
TEST_F(HostileModel, ThousandQuantisedFiles) {
  std::vector<Files> originals;
  for (const GroupScheme& scheme :
       {GroupScheme{8, 32, false}, GroupScheme{4, 32, true}}) {
    Files files =
        WriteAndRead(TinyConfig(MixerKind("full")), Tokenizer::Byte());
    QuantiseOptions options;
    options.scheme = scheme;
    options.threads = 1;
    options.convert.overwrite = true;
    QuantiseModel(root_ / "good", root_ / "quantised", options);
    files.weights =
        ReadFile(root_ / "quantised/model.safetensors", 1 << 20).Take();
    originals.push_back(files);
  }
  Mutator mutator(23);
  Outcome outcome;
  for (int i = 0; i < 1000 && !HasFailure(); ++i) {
    SCOPED_TRACE(::testing::Message() << "mutation " << i);
    Files files = originals[static_cast<size_t>(i) % 2];
    // Half of the time the header alone, which is a part of the file.
    uint64_t header = 0;
    std::memcpy(&header, files.weights.data(), sizeof(header));
    std::string head = files.weights.substr(0, 8 + header);
    if (mutator.Below(2) == 0) {
      mutator.Mutate(head);
      files.weights = head + files.weights.substr(8 + header);
    } else {
      mutator.Mutate(files.weights);
    }
    Try(Put(files), outcome);
  }
  EXPECT_GT(outcome.refused, 300);
  EXPECT_GT(outcome.working, 20);
}

// A state file is refused in one line, or gives the state that was saved: its
// hash covers all that a state is.
TEST_F(HostileModel, ThousandStateFiles) {
  const std::string path = root_ / "mutant.state";
  ModelConfig full = TinyConfig(Arch::kSeq2seq);
  full.attention = MixerKind("full");
  full.cross_attention = MixerKind("full");
  int refused = 0;
  for (const ModelConfig& config : {TinyConfig(MixerKind("linear")), full}) {
    WriteRandomModel(root_ / "good", config, Tokenizer::Byte(), 1);
    const Model model = Model::Open(root_ / "good", {.threads = 1}).Take();
    const std::vector<int32_t> tokens{1, 2, 3};
    State state =
        config.arch == Arch::kSeq2seq ? model.Encode(tokens) : State(model);
    std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
    model.Prefill(state, tokens, logits.data());
    SaveState(model, state, path);
    const std::string good = ReadFile(path, 1 << 20).Take();
    Mutator mutator(21);
    for (int i = 0; i < 500 && !HasFailure(); ++i) {
      SCOPED_TRACE(::testing::Message() << "mutation " << i);
      std::string bytes = good;
      mutator.Mutate(bytes);
      WriteFileAtomically(path, bytes);
      const int64_t before = testing::AllocatedBytes();
      const Result<State> loaded = LoadState(model, path);
      EXPECT_LT(testing::AllocatedBytes() - before, kMostBytes);
      if (loaded.ok()) {
        EXPECT_TRUE(loaded.value() == state);
      } else {
        ExpectOneLine(loaded.error());
        ++refused;
      }
    }
  }
  RecordProperty("refused", refused);
  EXPECT_GT(refused, 900);
}

TEST_F(HostileModel, TruncationAtEveryByteOfTheHeader) {
  const Files files =
      WriteAndRead(TinyConfig(MixerKind("linear")), Tokenizer::Byte());
  uint64_t header = 0;
  std::memcpy(&header, files.weights.data(), sizeof(header));
  Outcome outcome;
  for (size_t size = 0; size <= 8 + header && !HasFailure(); ++size) {
    SCOPED_TRACE(::testing::Message() << "cut at " << size);
    Files cut = files;
    cut.weights.resize(size);
    Try(Put(cut), outcome);
  }
  for (const auto member : {&Files::config, &Files::tokenizer}) {
    // The last byte is the newline after the object.
    for (size_t size = 0; size + 1 < (files.*member).size(); ++size) {
      Files cut = files;
      (cut.*member).resize(size);
      Try(Put(cut), outcome);
    }
  }
  EXPECT_EQ(outcome.working, 0);
}

TEST_F(HostileModel, GiantCountsAreRefusedWithoutTheMemory) {
  const Files good =
      WriteAndRead(TinyConfig(MixerKind("linear")), Tokenizer::Byte());
  Outcome outcome;
  for (const char* key : {"vocab_size", "d_model", "n_layers", "n_heads",
                          "d_key", "d_value", "d_ff", "max_positions"}) {
    for (const char* value : {"1000000", "1073741824", "9223372036854775807"}) {
      SCOPED_TRACE(::testing::Message() << key << " " << value);
      Files files = good;
      const std::string quoted = std::string("\"") + key + "\"";
      const size_t at = files.config.find(quoted);
      ASSERT_NE(at, std::string::npos);
      const size_t begin = files.config.find_first_of("0123456789", at);
      const size_t end = files.config.find_first_not_of("0123456789", begin);
      files.config.replace(begin, end - begin, value);
      Try(Put(files), outcome);
    }
  }
  EXPECT_EQ(outcome.working, 0);
}

// The index of shards, and a header of one: what they claim is refused in one
// line, or is the model.
TEST_F(HostileModel, ThousandIndexes) {
  const Files files =
      WriteAndRead(TinyConfig(MixerKind("linear")), Tokenizer::Byte());
  const std::string dir = Put(files);
  std::filesystem::rename(dir + "/model.safetensors", dir + "/shard");
  const std::string index = dir + "/model.safetensors.index.json";
  std::string good = "{\"metadata\":{\"total_size\":1},\"weight_map\":{";
  const char* separator = "";
  for (const auto& [name, shape] :
       WeightShapes(TinyConfig(MixerKind("linear")))) {
    good += StrCat(separator, "\"", name, "\":\"shard\"");
    separator = ",";
  }
  good += "}}";
  Outcome outcome;
  WriteFileAtomically(index, good);
  Try(dir, outcome);
  EXPECT_EQ(outcome.working, 1);
  Mutator mutator(22);
  for (int i = 0; i < 1000 && !HasFailure(); ++i) {
    SCOPED_TRACE(::testing::Message() << "mutation " << i);
    std::string bytes = good;
    mutator.Mutate(bytes);
    WriteFileAtomically(index, bytes);
    Try(dir, outcome);
  }
  EXPECT_EQ(outcome.refused + outcome.working, 1001);
  EXPECT_GT(outcome.refused, 500);
  // Changes within the metadata change no model.
  EXPECT_GT(outcome.working, 1);
}

TEST_F(HostileModel, FilesThatAreNoFiles) {
  WriteAndRead(TinyConfig(MixerKind("linear")), Tokenizer::Byte());
  Outcome outcome;
  for (const char* name : kNames) {
    const std::filesystem::path dir = root_ / "odd";
    std::filesystem::remove_all(dir);
    std::filesystem::copy(root_ / "good", dir);
    std::filesystem::remove(dir / name);
    Try(dir, outcome);  // missing
    std::filesystem::create_directory(dir / name);
    Try(dir, outcome);  // a folder
    std::filesystem::remove(dir / name);
    std::filesystem::create_symlink("/dev/zero", dir / name);
    Try(dir, outcome);  // never ends
  }
  EXPECT_EQ(outcome.refused, 9);
}

}  // namespace
}  // namespace tarn
