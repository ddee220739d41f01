#include "cli/console/output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <string>

#include "core/error.h"
#include "text/utf8.h"

namespace tarn::cli {
namespace {

TEST(Utf8Stream, HoldsBackUnfinishedCharactersOnly) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("a\xF0"), "a");
  EXPECT_EQ(stream.Push("\x9F"), "");
  EXPECT_EQ(stream.Push("\x98"), "");
  EXPECT_EQ(stream.Push("\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_EQ(stream.Push("\xE2"), "");
  EXPECT_EQ(stream.Push("!"), "\xE2!");  // not UTF-8: passes as it is
  EXPECT_EQ(stream.Push("\xC3"), "");
  EXPECT_EQ(stream.Finish(), "\xC3");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(Utf8Stream, LosesNothingWhateverTheBytes) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 300; ++trial) {
    Utf8Stream stream;
    std::string in, out;
    for (int i = 0; i < 200; ++i) {
      const char byte = static_cast<char>(random() % 2 ? random() : 0xE2);
      in += byte;
      const std::string shown = stream.Push(std::string(1, byte));
      out += shown;
      ASSERT_GE(out.size() + 3, in.size());
    }
    EXPECT_EQ(out + stream.Finish(), in);
  }
}

TEST(Payload, FallsSilentWhenTheReaderIsGone) {
  ASSERT_NE(std::signal(SIGPIPE, SIG_IGN), SIG_ERR);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::FILE* file = fdopen(ends[1], "w");
  Payload payload(file);
  payload.Write("abc");
  payload.Flush();
  char got[4] = {};
  ASSERT_EQ(read(ends[0], got, 3), 3);
  EXPECT_STREQ(got, "abc");
  EXPECT_FALSE(payload.reader_gone());
  close(ends[0]);
  payload.Write("d");
  payload.Flush();
  EXPECT_TRUE(payload.reader_gone());
  payload.Write(std::string(1 << 20, 'x'));  // dropped, no error
  std::fclose(file);
}

TEST(Payload, AFullDiskIsAnError) {
  std::FILE* full = std::fopen("/dev/full", "w");
  if (full == nullptr) GTEST_SKIP() << "no /dev/full";
  Payload payload(full);
  payload.Write("x");
  EXPECT_THROW(payload.Flush(), IoError);
  std::fclose(full);
}

TEST(NumberText, ReadsBackAsTheSameDouble) {
  for (double value : {0.1, -1.0 / 3, 1e300, 5e-324, 0.0}) {
    EXPECT_EQ(std::strtod(NumberText(value).c_str(), nullptr), value);
  }
  EXPECT_EQ(NumberText(std::stod("nan")), "null");
}

}  // namespace
}  // namespace tarn::cli
