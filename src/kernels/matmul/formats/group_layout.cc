#include "kernels/matmul/formats/group_layout.h"

#include <algorithm>
#include <cstring>

#include "core/groups/round_group.h"

namespace tarn {
namespace {

// Byte of code k of a group, for an output; four bits: which half.
int64_t CodeByte(const GroupScheme& scheme, int64_t k, int64_t output) {
  return k / StripeInputs(scheme.bits) * kStripeBytes + output * 4 + k % 4;
}
int HalfOf(int64_t k) { return k % 8 < 4 ? 0 : 4; }

uint32_t FourBytes(const uint8_t* from) {
  uint32_t bytes;
  std::memcpy(&bytes, from, sizeof(bytes));
  return bytes;
}

// Four bytes at a time and without CodeByte's divisions: opening a model passes
// here with every weight.
void StoreGroup(const GroupScheme& scheme, const uint8_t* block, int64_t output,
                uint8_t* group) {
  constexpr uint32_t kOffsets = 0x01010101u * kByteOffset;
  constexpr uint32_t kLow = 0x0F0F0F0Fu;
  const uint8_t* codes = block + scheme.HeadBytes();
  uint8_t* to = group + output * 4;
  const auto store = [&](uint32_t four) {
    std::memcpy(to, &four, sizeof(four));
    to += kStripeBytes;
  };
  if (scheme.bits == 8) {
    for (int64_t k = 0; k < scheme.group; k += 4) {
      store(FourBytes(codes + k) ^ kOffsets);
    }
  } else {
    // The first half of the codes is in the low halves of all bytes.
    for (const int shift : {0, 4}) {
      for (int64_t k = 0; k < scheme.group / 2; k += 8) {
        store((FourBytes(codes + k) >> shift & kLow) |
              (FourBytes(codes + k + 4) >> shift & kLow) << 4);
      }
    }
  }
  uint8_t* scales = group + GroupCodeBytes(scheme) + output * 2;
  std::memcpy(scales, block, 2);
  if (scheme.minimum) {
    std::memcpy(scales + 2 * kPanelOutputs, block + 2, 2);
  }
}

}  // namespace

int64_t GroupPanelBytes(const GroupScheme& scheme, int64_t inputs) {
  return scheme.Blocks(inputs) * GroupBytes(scheme);
}

void PackGroups(const GroupScheme& scheme, const float* weights, int64_t rows,
                int64_t inputs, int64_t column, uint8_t* panel) {
  uint8_t block[4 + kMostGroup];
  for (int64_t k = 0; k < inputs; k += scheme.group) {
    for (int64_t r = 0; r < rows; ++r) {
      RoundGroup(weights + r * inputs + k, std::min(scheme.group, inputs - k),
                 scheme, block);
      StoreGroup(scheme, block, column + r, panel);
    }
    panel += GroupBytes(scheme);
  }
}

void PackBlocks(const GroupScheme& scheme, const uint8_t* blocks, int64_t rows,
                int64_t inputs, int64_t column, uint8_t* panel) {
  const int64_t row_bytes = scheme.RowBytes(inputs);
  for (int64_t g = 0; g < scheme.Blocks(inputs); ++g) {
    for (int64_t r = 0; r < rows; ++r) {
      StoreGroup(scheme, blocks + r * row_bytes + g * scheme.BlockBytes(),
                 column + r, panel);
    }
    panel += GroupBytes(scheme);
  }
}

void ReadGroups(const GroupScheme& scheme, const uint8_t* panel, int64_t inputs,
                int64_t column, float* out) {
  for (int64_t from = 0; from < inputs; from += scheme.group) {
    const uint8_t* head = panel + GroupCodeBytes(scheme) + column * 2;
    const float scale = GroupScale(head);
    const float minimum =
        scheme.minimum ? GroupScale(head + 2 * kPanelOutputs) : 0.0f;
    const int64_t count = std::min(scheme.group, inputs - from);
    for (int64_t k = 0; k < count; ++k) {
      const int byte = panel[CodeByte(scheme, k, column)];
      const int code =
          scheme.bits == 8 ? byte - kByteOffset : byte >> HalfOf(k) & 15;
      out[from + k] = GroupValue(scheme, scale, minimum, code);
    }
    panel += GroupBytes(scheme);
  }
}

}  // namespace tarn
