// Sound files: RIFF WAVE, one channel of 16-bit PCM and nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tarn::train {

/// Bounds of what is read: ten minutes at 48 kHz fit.
inline constexpr size_t kMaxWavBytes = size_t{64} << 20;
inline constexpr int64_t kMaxSampleRate = 192000;

struct WavClip {
  int64_t sample_rate = 0;       // Hz
  std::vector<int16_t> samples;  // [count]
};

/// Reads the bytes of a file; `name` begins every message. Strict: the sizes of
/// the container and of its chunks must be those of the bytes, "fmt " comes
/// once and before "data", "data" once with a sample or more; other chunks are
/// skipped. FormatError with byte offset, wanted and given for anything else:
/// truncated, bytes after the end, another number of channels, another width,
/// compressed forms. O(bytes) for any input.
Result<WavClip> ParseWav(std::string_view bytes, const std::string& name);

}  // namespace tarn::train
