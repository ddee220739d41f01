// Encodings with blocks of 256 numbers in sub-blocks of 16 or 32, whose scales
// (S) and minima (M) are small integers times those of the block.
// ggml-quants.c: dequantize_row_q2_K ...; products are taken from left to
// right. All are exact in float32 but Q6_K's last.
#include "weights/gguf/block_bytes.h"
#include "weights/gguf/encodings.h"

namespace tarn {
namespace {

constexpr int kSuper = 256;
constexpr int kBy16 = 16, kBy32 = 32;  // numbers of a sub-block

// Sub-blocks s of 16 have their two bits in the bytes from 32 (s / 8) +
// 16 (s % 2) on, at 2 (s % 8 / 2): 32 bytes hold those of 128 numbers.
struct TwoBits {
  TwoBits(const uint8_t* codes, int s)
      : from(codes + 32 * (s / 8) + 16 * (s % 2)), shift(s % 8 / 2 * 2) {}
  int operator[](int j) const { return from[j] >> shift & 3; }
  const uint8_t* from;
  int shift;
};

// Sub-blocks s of 32 have their nibbles in the bytes from 32 (s / 2) on, the
// low ones first.
struct Nibbles {
  Nibbles(const uint8_t* codes, int s)
      : from(codes + 32 * (s / 2)), shift(s % 2 * 4) {}
  int operator[](int j) const { return from[j] >> shift & 15; }
  const uint8_t* from;
  int shift;
};

// { u8 s[16]; u8 b[64]; f16 d; f16 dmin }: d S q - dmin M, by 16.
struct Q2KBlock {
  static constexpr int kNumbers = kSuper, kBytes = 84;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block + 80), dmin = StoredF16(block + 82);
    for (int s = 0; s < kSuper / kBy16; ++s, out += kBy16) {
      const float scale = d * static_cast<float>(block[s] & 15);
      const float least = dmin * static_cast<float>(block[s] >> 4);
      const TwoBits q(block + 16, s);
      for (int j = 0; j < kBy16; ++j) {
        out[j] = scale * static_cast<float>(q[j]) - least;
      }
    }
  }
};

// { u8 h[32]; u8 b[64]; u8 s[12]; f16 d }: d (S - 32) (q + 4 h - 4), by 16; bit
// e / 32 of byte e % 32 of h is that of number e.
struct Q3KBlock {
  static constexpr int kNumbers = kSuper, kBytes = 110;
  static void Decode(const uint8_t* block, float* out) {
    const uint8_t* scales = block + 96;
    const float d = StoredF16(block + 108);
    for (int s = 0; s < kSuper / kBy16; ++s, out += kBy16) {
      const int low = scales[s % 8] >> (4 * (s / 8)) & 15;
      const int high = scales[8 + s % 4] >> (2 * (s / 4)) & 3;
      const float scale = d * static_cast<float>(low + 16 * high - 32);
      const TwoBits q(block + 32, s);
      const uint8_t* bits = block + 16 * (s % 2);
      for (int j = 0; j < kBy16; ++j) {
        const int bit = bits[j] >> (s / 2) & 1;
        out[j] = scale * static_cast<float>(q[j] + 4 * bit - 4);
      }
    }
  }
};

// S and M of sub-block s of 32, six bits each: those of the first four have
// bytes, whose upper bits are the last four's.
struct ScaleAndLeast {
  ScaleAndLeast(const uint8_t* packed, int s) {
    if (s < 4) {
      scale = static_cast<float>(packed[s] & 63);
      least = static_cast<float>(packed[s + 4] & 63);
    } else {
      const int both = packed[s + 4];
      scale = static_cast<float>((both & 15) + 16 * (packed[s - 4] >> 6));
      least = static_cast<float>((both >> 4) + 16 * (packed[s] >> 6));
    }
  }
  float scale, least;
};

// { f16 d; f16 dmin; u8 s[12]; u8 b[128] }: d S q - dmin M, by 32.
struct Q4KBlock {
  static constexpr int kNumbers = kSuper, kBytes = 144;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block), dmin = StoredF16(block + 2);
    for (int s = 0; s < kSuper / kBy32; ++s, out += kBy32) {
      const ScaleAndLeast own(block + 4, s);
      const float scale = d * own.scale, least = dmin * own.least;
      const Nibbles q(block + 16, s);
      for (int j = 0; j < kBy32; ++j) {
        out[j] = scale * static_cast<float>(q[j]) - least;
      }
    }
  }
};

// { f16 d; f16 dmin; u8 s[12]; u8 h[32]; u8 b[128] }: the same with the bits of
// h as in Q3_K.
struct Q5KBlock {
  static constexpr int kNumbers = kSuper, kBytes = 176;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block), dmin = StoredF16(block + 2);
    for (int s = 0; s < kSuper / kBy32; ++s, out += kBy32) {
      const ScaleAndLeast own(block + 4, s);
      const float scale = d * own.scale, least = dmin * own.least;
      const Nibbles q(block + 48, s);
      for (int j = 0; j < kBy32; ++j) {
        const int bit = block[16 + j] >> s & 1;
        out[j] = scale * static_cast<float>(q[j] + 16 * bit) - least;
      }
    }
  }
};

// { u8 b[128]; u8 h[64]; i8 s[16]; f16 d }: d S (q - 32), by 16. 64 bytes of b
// hold the nibbles of 128 numbers, the low ones first.
struct Q6KBlock {
  static constexpr int kNumbers = kSuper, kBytes = 210;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block + 208);
    for (int s = 0; s < kSuper / kBy16; ++s, out += kBy16) {
      const uint8_t* codes = block + 64 * (s / 8) + 16 * (s % 4);
      const int shift = s % 8 / 4 * 4;
      const TwoBits high(block + 128, s);
      const float scale =
          d * static_cast<float>(static_cast<int8_t>(block[192 + s]));
      for (int j = 0; j < kBy16; ++j) {
        const int q = (codes[j] >> shift & 15) + 16 * high[j] - 32;
        out[j] = scale * static_cast<float>(q);
      }
    }
  }
};

// { f16 d; u16 h; u8 l[4]; u8 b[128] }: d (S - 32) T[q], by 32; 16 bytes hold
// the codes of a sub-block, low nibbles first.
struct Iq4XsBlock {
  static constexpr int kNumbers = kSuper, kBytes = 136;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block);
    const int high = Stored<uint16_t>(block + 2);
    for (int s = 0; s < kSuper / kBy32; ++s, out += kBy32) {
      const int low = block[4 + s / 2] >> (4 * (s % 2)) & 15;
      const float scale =
          d * static_cast<float>(low + 16 * (high >> (2 * s) & 3) - 32);
      const uint8_t* codes = block + 8 + 16 * s;
      for (int j = 0; j < kBy32 / 2; ++j) {
        out[j] = scale * static_cast<float>(kIq4Values[codes[j] & 15]);
        out[j + 16] = scale * static_cast<float>(kIq4Values[codes[j] >> 4]);
      }
    }
  }
};

template <typename Block>
constexpr Encoding ReadSuper(const char* name) {
  return {name, Block::kNumbers, Block::kBytes, WidenBlocks<Block>};
}

}  // namespace

const Encoding kQ2KEncoding = ReadSuper<Q2KBlock>("Q2_K");
const Encoding kQ3KEncoding = ReadSuper<Q3KBlock>("Q3_K");
const Encoding kQ4KEncoding = ReadSuper<Q4KBlock>("Q4_K");
const Encoding kQ5KEncoding = ReadSuper<Q5KBlock>("Q5_K");
const Encoding kQ6KEncoding = ReadSuper<Q6KBlock>("Q6_K");
const Encoding kIq4XsEncoding = ReadSuper<Iq4XsBlock>("IQ4_XS");

}  // namespace tarn
