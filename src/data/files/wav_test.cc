#include "data/files/wav.h"

#include <gtest/gtest.h>

#include "data/files/wav_test_file.h"

namespace tarn::train {
namespace {

const std::vector<int16_t> kSamples = {0, 1, -1, 32767, -32768, 300, -300};

std::string Error(const std::string& bytes) {
  const Result<WavClip> clip = ParseWav(bytes, "clip.wav");
  if (clip.ok()) return "";
  EXPECT_EQ(clip.error().code(), ErrorCode::kFormat);
  return clip.error().what();
}

// One value of the format chunk replaced: `bytes` little-endian bytes at `at`.
std::string WithFormat(size_t at, uint64_t value, int bytes) {
  std::string format = WavFormat(8000);
  format.replace(at, bytes, LittleEndian(value, bytes));
  return WavContainer(WavChunk("fmt ", format) +
                      WavChunk("data", WavSamples(kSamples)));
}

TEST(Wav, ReadsEverySample) {
  const WavClip clip = ParseWav(WavFile(kSamples, 16000), "clip").Take();
  EXPECT_EQ(clip.sample_rate, 16000);
  EXPECT_EQ(clip.samples, kSamples);
}

TEST(Wav, PassesOverOtherChunksWithTheirPadding) {
  const std::string chunks =
      WavChunk("LIST", "odd") + WavChunk("fmt ", WavFormat(8000)) +
      WavChunk("fact", "1234") + WavChunk("data", WavSamples({5})) +
      WavChunk("id3 ", "x");
  EXPECT_EQ(ParseWav(WavContainer(chunks), "clip").Take().samples,
            std::vector<int16_t>{5});
}

TEST(Wav, EveryTruncationIsRefused) {
  const std::string whole = WavFile(kSamples);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(Error(whole.substr(0, size)), "") << size;
    // With a container size that fits, the chunks show the error.
    if (size < 12) continue;
    EXPECT_NE(Error(WavContainer(whole.substr(12, size - 12))), "") << size;
  }
  EXPECT_NE(Error(whole + "x").find("58"), std::string::npos);
}

TEST(Wav, RefusesWhatItIsNot) {
  EXPECT_NE(Error(WithFormat(0, 3, 2)).find("PCM"), std::string::npos);
  EXPECT_NE(Error(WithFormat(2, 2, 2)).find("channels: 1, got 2"),
            std::string::npos);
  EXPECT_NE(Error(WithFormat(4, 0, 4)).find("Hz"), std::string::npos);
  EXPECT_NE(Error(WithFormat(4, 0xFFFFFFFF, 4)).find("Hz"), std::string::npos);
  EXPECT_NE(Error(WithFormat(8, 8000, 4)).find("16000, got 8000"),
            std::string::npos);
  EXPECT_NE(Error(WithFormat(12, 4, 2)), "");
  EXPECT_NE(Error(WithFormat(14, 8, 2)).find("16, got 8"), std::string::npos);
}

TEST(Wav, RefusesChunksOutOfOrder) {
  const std::string format = WavChunk("fmt ", WavFormat(8000));
  const std::string data = WavChunk("data", WavSamples({1, 2}));
  EXPECT_NE(Error(WavContainer(data + format)).find("before"),
            std::string::npos);
  EXPECT_NE(Error(WavContainer(format + format + data)), "");
  EXPECT_NE(Error(WavContainer(format + data + data)), "");
  EXPECT_NE(Error(WavContainer(format)).find("'data'"), std::string::npos);
  EXPECT_NE(Error(WavContainer(format + WavChunk("data", ""))), "");
  EXPECT_NE(Error(WavContainer(format + WavChunk("data", "odd"))), "");
  EXPECT_NE(Error(WavContainer("")), "");
}

TEST(Wav, ASizeThatLiesIsRefused) {
  // A chunk that claims almost 4 GiB, and one whose padding is missing.
  const std::string format = WavChunk("fmt ", WavFormat(8000));
  EXPECT_NE(Error(WavContainer(format + "data" + LittleEndian(~0u, 4) + "xx"))
                .find("4294967296"),
            std::string::npos);
  EXPECT_NE(Error(WavContainer(format + "LIST" + LittleEndian(3, 4) + "abc")),
            "");
  EXPECT_NE(Error("RIFX" + WavFile(kSamples).substr(4)), "");
  EXPECT_NE(Error(std::string(kMaxWavBytes + 1, 'x')).find("at most"),
            std::string::npos);
}

}  // namespace
}  // namespace tarn::train
