// Encodings with blocks of 256 numbers in sub-blocks of 16 or 32, whose scales
// (S) and minima (M) are small integers times those of the block.
// ggml-quants.c: dequantize_row_q2_K ...; products are taken from left to
// right. All are exact in float32 but Q6_K's last.
#include "weights/gguf/block_bytes.h"
#include "weights/gguf/encodings.h"

namespace tarn {
namespace {

constexpr int kSuper = 256;

// The two bits of number e where 32 bytes hold those of 128 numbers.
int TwoBits(const uint8_t* codes, int e) {
  const int h = e / 128, r = e % 128;
  return codes[32 * h + r % 32] >> (2 * (r / 32)) & 3;
}

// The nibble of number e where 32 bytes hold those of 64.
int NibbleOf64(const uint8_t* codes, int e) {
  const uint8_t both = codes[32 * (e / 64) + e % 32];
  return e % 64 < 32 ? both & 15 : both >> 4;
}

// The bit of number e where byte i holds those of i, i + 32, ...
int HighBit(const uint8_t* bits, int e) { return bits[e % 32] >> (e / 32) & 1; }

// { u8 s[16]; u8 b[64]; f16 d; f16 dmin }: d S q - dmin M, by 16.
struct Q2KBlock {
  static constexpr int kNumbers = kSuper, kBytes = 84;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block + 80), dmin = StoredF16(block + 82);
    for (int e = 0; e < kSuper; ++e) {
      const uint8_t both = block[e / 16];
      const float scale = d * static_cast<float>(both & 15);
      const float least = dmin * static_cast<float>(both >> 4);
      out[e] = scale * static_cast<float>(TwoBits(block + 16, e)) - least;
    }
  }
};

// { u8 h[32]; u8 b[64]; u8 s[12]; f16 d }: d (S - 32) (q + 4 h - 4), by 16.
struct Q3KBlock {
  static constexpr int kNumbers = kSuper, kBytes = 110;
  static void Decode(const uint8_t* block, float* out) {
    const uint8_t* scales = block + 96;
    const float d = StoredF16(block + 108);
    for (int e = 0; e < kSuper; ++e) {
      const int s = e / 16;
      const int low = scales[s % 8] >> (4 * (s / 8)) & 15;
      const int high = scales[8 + s % 4] >> (2 * (s / 4)) & 3;
      const float scale = d * static_cast<float>(low + 16 * high - 32);
      const int q = TwoBits(block + 32, e) + 4 * HighBit(block, e) - 4;
      out[e] = scale * static_cast<float>(q);
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
    for (int e = 0; e < kSuper; ++e) {
      const ScaleAndLeast own(block + 4, e / 32);
      const auto q = static_cast<float>(NibbleOf64(block + 16, e));
      out[e] = d * own.scale * q - dmin * own.least;
    }
  }
};

// { f16 d; f16 dmin; u8 s[12]; u8 h[32]; u8 b[128] }: the same with five bits.
struct Q5KBlock {
  static constexpr int kNumbers = kSuper, kBytes = 176;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block), dmin = StoredF16(block + 2);
    for (int e = 0; e < kSuper; ++e) {
      const ScaleAndLeast own(block + 4, e / 32);
      const int q = NibbleOf64(block + 48, e) + 16 * HighBit(block + 16, e);
      out[e] = d * own.scale * static_cast<float>(q) - dmin * own.least;
    }
  }
};

// { u8 b[128]; u8 h[64]; i8 s[16]; f16 d }: d S (q - 32), by 16.
struct Q6KBlock {
  static constexpr int kNumbers = kSuper, kBytes = 210;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block + 208);
    for (int e = 0; e < kSuper; ++e) {
      const uint8_t both = block[64 * (e / 128) + e % 64];
      const int low = e % 128 < 64 ? both & 15 : both >> 4;
      const int q = low + 16 * TwoBits(block + 128, e) - 32;
      const auto s =
          static_cast<float>(static_cast<int8_t>(block[192 + e / 16]));
      out[e] = d * s * static_cast<float>(q);
    }
  }
};

// { f16 d; u16 h; u8 l[4]; u8 b[128] }: d (S - 32) T[q], by 32; the codes of a
// sub-block are low nibbles, then high ones.
struct Iq4XsBlock {
  static constexpr int kNumbers = kSuper, kBytes = 136;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block);
    const int high = Stored<uint16_t>(block + 2);
    for (int e = 0; e < kSuper; ++e) {
      const int s = e / 32, j = e % 32;
      const int low = block[4 + s / 2] >> (4 * (s % 2)) & 15;
      const float scale =
          d * static_cast<float>(low + 16 * (high >> (2 * s) & 3) - 32);
      const uint8_t both = block[8 + 16 * s + j % 16];
      const int q = j < 16 ? both & 15 : both >> 4;
      out[e] = scale * static_cast<float>(kIq4Values[q]);
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
