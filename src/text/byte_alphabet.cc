#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace tarn {
namespace {

constexpr uint32_t kFirstMoved = 0x100;

struct Alphabet {
  std::array<uint16_t, 256> point{};             // of a byte
  std::array<int16_t, kFirstMoved + 68> byte{};  // of a code point, or -1
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte) byte = -1;
  uint32_t moved = kFirstMoved;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
    const uint32_t point = printable ? b : moved++;
    alphabet.point[b] = static_cast<uint16_t>(point);
    alphabet.byte[point] = static_cast<int16_t>(b);
  }
  return alphabet;
}
constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string BytesToAlphabet(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    AppendUtf8(kAlphabet.point[static_cast<uint8_t>(c)], text);
  }
  return text;
}

std::optional<std::string> AlphabetToBytes(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const Utf8Head head = ReadUtf8(text);
    if (head.kind != Utf8Head::kValid ||
        head.code_point >= kAlphabet.byte.size() ||
        kAlphabet.byte[head.code_point] < 0) {
      return std::nullopt;
    }
    bytes += static_cast<char>(kAlphabet.byte[head.code_point]);
    text.remove_prefix(head.bytes);
  }
  return bytes;
}

}  // namespace tarn
