// Encodings with blocks of 32 numbers: one scale, of Q4_1 and Q5_1 also a
// minimum, and a code for each number. ggml-quants.c: dequantize_row_q4_0 ...
// d q is exact in float32 throughout: 11 bits of a float16 times 8 of a code.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/groups/group_scheme.h"
#include "core/numbers/bit_cast.h"
#include "weights/gguf/block_bytes.h"
#include "weights/gguf/encodings.h"

namespace tarn {
namespace {

constexpr int kHalf = 16;  // codes in the low nibbles of a block

// number(code) of the codes in 16 bytes: of the low nibbles, then of the high
// ones.
template <typename F>
void FromNibbles(const uint8_t* codes, float* out, const F& number) {
  for (int j = 0; j < kHalf; ++j) out[j] = number(codes[j] & 15);
  for (int j = 0; j < kHalf; ++j) out[j + kHalf] = number(codes[j] >> 4);
}

// The same of codes with a fifth bit.
template <typename F>
void FromFiveBits(uint32_t high, const uint8_t* codes, float* out,
                  const F& number) {
  const auto bit = [&](int j) { return static_cast<int>(high >> j & 1) << 4; };
  for (int j = 0; j < kHalf; ++j) out[j] = number((codes[j] & 15) + bit(j));
  for (int j = 0; j < kHalf; ++j) {
    out[j + kHalf] = number((codes[j] >> 4) + bit(j + kHalf));
  }
}

void StoreF16(float value, uint8_t* to) {
  const uint16_t bits = F32ToF16(value);
  std::memcpy(to, &bits, sizeof(bits));
}

// { f16 d; i8 q[32] }: d q.
struct Q80Block {
  static constexpr int kNumbers = 32, kBytes = 34;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block);
    for (int j = 0; j < kNumbers; ++j) {
      out[j] = d * static_cast<float>(static_cast<int8_t>(block[2 + j]));
    }
  }
  // d: the largest magnitude over 127. Codes are rounded before d is, half away
  // from 0, as in quantize_row_q8_0_ref.
  static void Encode(const float* numbers, uint8_t* block) {
    float most = 0;
    for (int j = 0; j < kNumbers; ++j) {
      most = std::max(most, std::abs(numbers[j]));
    }
    const float d = most / 127;
    const float inverse = d == 0 ? 0 : 1 / d;
    StoreF16(d, block);
    for (int j = 0; j < kNumbers; ++j) {
      const float q = std::round(numbers[j] * inverse);
      block[2 + j] = static_cast<uint8_t>(
          static_cast<int8_t>(std::clamp(q, -127.f, 127.f)));
    }
  }
};

// { f16 d; u8 b[16] }: d (q - 8).
struct Q40Block {
  static constexpr int kNumbers = 32, kBytes = 18;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block);
    FromNibbles(block + 2, out,
                [d](int q) { return d * static_cast<float>(q - 8); });
  }
  // The number of the largest magnitude, the first of equals, becomes -8 d, as
  // in quantize_row_q4_0_ref.
  static void Encode(const float* numbers, uint8_t* block) {
    float most = 0;
    for (int j = 0; j < kNumbers; ++j) {
      if (std::abs(numbers[j]) > std::abs(most)) most = numbers[j];
    }
    const float d = most / -8;
    const float inverse = d == 0 ? 0 : 1 / d;
    StoreF16(d, block);
    const auto code = [&](int j) {
      const float q = std::trunc(numbers[j] * inverse + 8.5f);
      return static_cast<uint8_t>(std::clamp(q, 0.f, 15.f));
    };
    for (int j = 0; j < kHalf; ++j) {
      block[2 + j] = static_cast<uint8_t>(code(j) | code(j + kHalf) << 4);
    }
  }
};

// { f16 d; f16 m; u8 b[16] }: d q + m.
struct Q41Block {
  static constexpr int kNumbers = 32, kBytes = 20;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block), m = StoredF16(block + 2);
    FromNibbles(block + 4, out,
                [d, m](int q) { return d * static_cast<float>(q) + m; });
  }
};

// { f16 d; u32 h; u8 b[16] }: d (q - 16).
struct Q50Block {
  static constexpr int kNumbers = 32, kBytes = 22;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block);
    FromFiveBits(Stored<uint32_t>(block + 2), block + 6, out,
                 [d](int q) { return d * static_cast<float>(q - 16); });
  }
};

// { f16 d; f16 m; u32 h; u8 b[16] }: d q + m.
struct Q51Block {
  static constexpr int kNumbers = 32, kBytes = 24;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block), m = StoredF16(block + 2);
    FromFiveBits(Stored<uint32_t>(block + 4), block + 8, out,
                 [d, m](int q) { return d * static_cast<float>(q) + m; });
  }
};

// { f16 d; u8 b[16] }: d T[q].
struct Iq4NlBlock {
  static constexpr int kNumbers = 32, kBytes = 18;
  static void Decode(const uint8_t* block, float* out) {
    const float d = StoredF16(block);
    FromNibbles(block + 2, out,
                [d](int q) { return d * static_cast<float>(kIq4Values[q]); });
  }
};

// { u8 x; u8 b[16] }: 2^(x - 128) t[q], OCP's MX with twice its numbers and
// half its scale. x 255 stands for NaN there, and here.
struct Mxfp4Block {
  static constexpr int kNumbers = 32, kBytes = 17;
  static void Decode(const uint8_t* block, float* out) {
    static constexpr int8_t kValues[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                           0, -1, -2, -3, -4, -6, -8, -12};
    const uint32_t x = block[0];
    // Below 2, a subnormal: 2^-128 and 2^-127.
    const float d =
        x == 255 ? std::numeric_limits<float>::quiet_NaN()
                 : BitCast<float>(x < 2 ? 0x00200000u << x : (x - 1) << 23);
    FromNibbles(block + 1, out,
                [d](int q) { return d * static_cast<float>(kValues[q]); });
  }
};

template <typename Block>
constexpr Encoding Read(const char* name) {
  return {name, Block::kNumbers, Block::kBytes, WidenBlocks<Block>};
}

template <typename Block>
constexpr Encoding Written(const char* name, const GroupScheme& scheme) {
  return {name,
          Block::kNumbers,
          Block::kBytes,
          WidenBlocks<Block>,
          NarrowBlocks<Block>,
          &scheme};
}

// Blocks that a matrix takes as they are.
constexpr GroupScheme kQ80Scheme = {8, 32, false};
constexpr GroupScheme kQ40Scheme = {4, 32, false};
constexpr GroupScheme kQ41Scheme = {4, 32, true};

}  // namespace

const Encoding kQ80Encoding = Written<Q80Block>("Q8_0", kQ80Scheme);
const Encoding kQ40Encoding = Written<Q40Block>("Q4_0", kQ40Scheme);
const Encoding kQ41Encoding = {"Q4_1",           Q41Block::kNumbers,
                               Q41Block::kBytes, WidenBlocks<Q41Block>,
                               nullptr,          &kQ41Scheme};
const Encoding kQ50Encoding = Read<Q50Block>("Q5_0");
const Encoding kQ51Encoding = Read<Q51Block>("Q5_1");
const Encoding kIq4NlEncoding = Read<Iq4NlBlock>("IQ4_NL");
const Encoding kMxfp4Encoding = Read<Mxfp4Block>("MXFP4");

}  // namespace tarn
