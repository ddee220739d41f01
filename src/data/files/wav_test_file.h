// Sound files for tests, written byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tarn::train {

inline std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) {
    text += static_cast<char>(value >> 8 * i & 0xFF);
  }
  return text;
}

/// A chunk with its header, padded to an even size.
inline std::string WavChunk(const std::string& id, const std::string& body) {
  const std::string pad(body.size() % 2, '\0');
  return id + LittleEndian(body.size(), 4) + body + pad;
}

inline std::string WavFormat(int64_t rate) {
  return LittleEndian(1, 2) + LittleEndian(1, 2) + LittleEndian(rate, 4) +
         LittleEndian(2 * rate, 4) + LittleEndian(2, 2) + LittleEndian(16, 2);
}

inline std::string WavSamples(const std::vector<int16_t>& samples) {
  std::string text;
  for (const int16_t sample : samples) {
    text += LittleEndian(static_cast<uint16_t>(sample), 2);
  }
  return text;
}

/// The container around chunks.
inline std::string WavContainer(const std::string& chunks) {
  return "RIFF" + LittleEndian(chunks.size() + 4, 4) + "WAVE" + chunks;
}

inline std::string WavFile(const std::vector<int16_t>& samples,
                           int64_t rate = 8000) {
  return WavContainer(WavChunk("fmt ", WavFormat(rate)) +
                      WavChunk("data", WavSamples(samples)));
}

}  // namespace tarn::train
