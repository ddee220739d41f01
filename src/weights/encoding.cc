#include "weights/encoding.h"

#include <cstring>

#include "core/half.h"

namespace tarn {
namespace {

void WidenF32(const uint8_t* from, int64_t numbers, float* to) {
  if (numbers > 0) {
    std::memcpy(to, from, static_cast<size_t>(numbers) * sizeof(float));
  }
}

template <float (*widen)(uint16_t)>
void WidenHalves(const uint8_t* from, int64_t numbers, float* to) {
  for (int64_t i = 0; i < numbers; ++i) {
    uint16_t bits;  // copied: the data may be unaligned
    std::memcpy(&bits, from + i * static_cast<int64_t>(sizeof(bits)),
                sizeof(bits));
    to[i] = widen(bits);
  }
}

void WidenBytes(const uint8_t* from, int64_t numbers, float* to) {
  for (int64_t i = 0; i < numbers; ++i) to[i] = static_cast<float>(from[i]);
}

void NarrowF32(const float* from, int64_t numbers, uint8_t* to) {
  if (numbers > 0) {
    std::memcpy(to, from, static_cast<size_t>(numbers) * sizeof(float));
  }
}

template <uint16_t (*narrow)(float)>
void NarrowHalves(const float* from, int64_t numbers, uint8_t* to) {
  for (int64_t i = 0; i < numbers; ++i) {
    const uint16_t bits = narrow(from[i]);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(bits)), &bits,
                sizeof(bits));
  }
}

}  // namespace

const Encoding kF32Encoding = {"F32", 1, 4, WidenF32, NarrowF32};
const Encoding kBF16Encoding = {"BF16", 1, 2, WidenHalves<BF16ToF32>,
                                NarrowHalves<F32ToBF16>};
const Encoding kF16Encoding = {"F16", 1, 2, WidenHalves<F16ToF32>,
                               NarrowHalves<F32ToF16>};
const Encoding kBytesEncoding = {"U8", 1, 1, WidenBytes};

const Encoding& EncodingOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kF32Encoding;
    case DType::kBF16:
      return kBF16Encoding;
    case DType::kF16:
      break;
  }
  return kF16Encoding;
}

}  // namespace tarn
