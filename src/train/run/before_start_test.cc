// The command line as it is checked before libtorch is loaded.

#include "train/run/before_start.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "train/options/test_util.h"

namespace tarn::train {
namespace {

std::string ReadRefusal(const Given& given) {
  return Refusal([&] { ReadRanks(given); });
}

TEST(ReadRanksTest, ReadsWhatIsGiven) {
  EXPECT_EQ(ReadRanks({}).ranks, 1);
  EXPECT_EQ(ReadRanks({}).pieces, 1);
  const RanksWanted wanted = ReadRanks({{"ranks", "6"},
                                        {"sequence_parallel", "3"},
                                        {"backend", "gloo"},
                                        {"timeout", "2.5"}});
  EXPECT_EQ(wanted.ranks, 6);
  EXPECT_EQ(wanted.pieces, 3);
  // Given twice, the last one counts.
  EXPECT_EQ(ReadRanks({{"ranks", "6"}, {"ranks", "2"}}).ranks, 2);
}

TEST(ReadRanksTest, NamesTheFlagAndItsRange) {
  for (const char* value : {"0", "1025", "-1", "two", "2x", "", "1.5"}) {
    EXPECT_EQ(ReadRefusal({{"ranks", value}}),
              StrCat("--ranks: want a whole number from 1 to 1024, got \"",
                     value, "\""));
  }
  for (const char* value : {"0", "1000001", "nan", "inf", "soon"}) {
    EXPECT_EQ(ReadRefusal({{"timeout", value}}),
              StrCat("--timeout: want a number from 1 to 1000000, got \"",
                     value, "\""));
  }
  EXPECT_EQ(ReadRefusal({{"backend", "smoke"}}),
            "--backend: want auto, gloo or nccl, got \"smoke\"");
  EXPECT_EQ(ReadRefusal({{"ranks", "3"}, {"sequence_parallel", "2"}}),
            "--sequence-parallel: want a divisor of the 3 ranks, got 2");
  EXPECT_EQ(
      ReadRefusal({{"sequence_parallel", "2"}}),
      "--sequence-parallel: want 1, or as many processes (--ranks), got 2");
}

TEST(CheckBeforeStartTest, RefusesWithoutWriting) {
  const std::string out = testing::TempDir() + "/before_start";
  std::filesystem::remove_all(out);
  const auto refusal = [&](Given given) {
    given.push_back({"out", out});
    try {
      CheckBeforeStart(given);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Given copy = {{"generator", "copy"}};
  const auto with = [&](Given more) {
    more.insert(more.end(), copy.begin(), copy.end());
    return more;
  };
  EXPECT_EQ(refusal(with({})), "");
  EXPECT_TRUE(Contains(refusal({}), "--data: want"));
  EXPECT_TRUE(Contains(refusal(with({{"batch", "0"}})), "--batch: want"));
  EXPECT_TRUE(Contains(refusal({{"data", "/nowhere/text"}}), "/nowhere/text"));
  EXPECT_TRUE(
      Contains(refusal({{"ranks", "2"}, {"data", "-"}}), "--data: want files"));
  EXPECT_TRUE(Contains(
      refusal(with(
          {{"batch", "1048576"}, {"seq_len", "1048576"}, {"d_model", "4096"}})),
      "this machine's memory"));
  EXPECT_TRUE(Contains(refusal(with({{"ranks", "2"},
                                     {"sequence_parallel", "2"},
                                     {"attention", "conditional-full"}})),
                       "sequences can be cut over ranks"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace tarn::train
