// The fuzz targets without a fuzzer: their seeds, and some mutations of each,
// the same in every run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/tiny_model.h"
#include "hostile/mutator.h"

#define TARN_FUZZ_TARGET(name) \
  extern "C" int Fuzz_##name(const uint8_t* data, size_t size);
#include "fuzz_targets.inc"
#undef TARN_FUZZ_TARGET

namespace tarn::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr int kMutations = 200;  // of a seed

struct Target {
  const char* name;
  int (*run)(const uint8_t* data, size_t size);
};

#define TARN_FUZZ_TARGET(name) {#name, Fuzz_##name},
constexpr Target kTargets[] = {
#include "fuzz_targets.inc"
};
#undef TARN_FUZZ_TARGET

// Without exceptions but for findings. A copy of exactly these bytes: reading
// past them is found.
void Give(const Target& target, const std::string& input) {
  const std::vector<uint8_t> exact(input.begin(), input.end());
  static const uint8_t nothing = 0;
  try {
    target.run(exact.empty() ? &nothing : exact.data(), exact.size());
  } catch (const std::exception& error) {
    ADD_FAILURE() << target.name << ": " << error.what();
  }
}

bool IsRead(const Target& target, const std::string& input) {
  const int64_t before = Accepted();
  Give(target, input);
  return Accepted() > before;
}

using Seeds = std::vector<std::pair<std::string, std::string>>;

Seeds SeedsOf(const std::string& target) {
  Seeds seeds;
  const fs::path folder = fs::path(TARN_FUZZ_CORPUS) / target;
  for (const auto& entry : fs::directory_iterator(folder)) {
    seeds.emplace_back(entry.path().filename().string(),
                       ReadFile(entry.path().string(), 1 << 20).Take());
  }
  std::sort(seeds.begin(), seeds.end());
  return seeds;
}

class FuzzCorpus : public ::testing::TestWithParam<Target> {};

TEST_P(FuzzCorpus, SeedsThatAreValidAreRead) {
  const Seeds seeds = SeedsOf(GetParam().name);
  int valid = 0;
  for (const auto& [name, input] : seeds) {
    SCOPED_TRACE(name);
    const bool read = IsRead(GetParam(), input);
    if (!name.starts_with("valid")) continue;
    EXPECT_TRUE(read) << LastRefusal();
    ++valid;
  }
  EXPECT_GE(valid, 2);
  Give(GetParam(), "");
}

TEST_P(FuzzCorpus, MutationsOfSeeds) {
  Mutator mutator(41);
  for (const auto& [name, seed] : SeedsOf(GetParam().name)) {
    for (int i = 0; i < kMutations && !HasFailure(); ++i) {
      SCOPED_TRACE(::testing::Message() << name << ", mutation " << i);
      std::string input = seed;
      if (i % 4 == 0 && input.starts_with('{')) {
        mutator.MutateJson(input);
      } else {
        mutator.Mutate(input);
      }
      Give(GetParam(), input);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, FuzzCorpus, ::testing::ValuesIn(kTargets),
                         [](const auto& info) { return info.param.name; });

// The seeds that make_corpus.py cannot write are the files of today's models.
// TARN_FUZZ_WRITE names a corpus into which they are written.
TEST(FuzzStates, WhatIsWrittenTodayIsRead) {
  const char* corpus = std::getenv("TARN_FUZZ_WRITE");
  for (const auto& [target, files] : {std::pair{"state", StateFiles()},
                                      std::pair{"session", SessionFiles()}}) {
    const Target* row = std::find_if(
        std::begin(kTargets), std::end(kTargets),
        [&](const Target& one) { return one.name == std::string(target); });
    for (const auto& [name, bytes] : files) {
      EXPECT_TRUE(IsRead(*row, bytes))
          << target << " " << name << ": " << LastRefusal();
      if (corpus == nullptr) continue;
      const fs::path folder = fs::path(corpus) / target;
      fs::create_directories(folder);
      WriteFileAtomically((folder / name).string(), bytes);
    }
  }
}

}  // namespace
}  // namespace tarn::fuzz
