// Panels of groups: for each group of inputs the codes of kPanelOutputs
// outputs, then their float16 scales, then their minima where there are any;
// one stream, which a product with one row of inputs reads from front to back.
//   8 bits   [k/4][output][4] bytes, code + 128 of inputs k..k+3
//   4 bits   [k/8][output][4] bytes, the low halves inputs k..k+3, the high
//   ones
//            k+4..k+7, codes 0..15
// A vector of such bytes meets the same four inputs of several outputs, which
// is what the byte dot products of SIMD targets take. The last group of a row
// is whole.
#pragma once

#include <cstdint>

#include "kernels/matmul/weight_format.h"

namespace tarn {

/// What is added to 8-bit codes: products multiply unsigned bytes.
inline constexpr int kByteOffset = 128;

/// Panels that many rows meet together: 8 of 64 outputs, whose sums for 48 rows
/// (96 KiB) fit into the second-level cache.
inline constexpr int64_t kPanelsTogether = 8;

/// Inputs of one stored vector, and its bytes for a whole panel.
constexpr int64_t StripeInputs(int bits) { return 32 / bits; }
inline constexpr int64_t kStripeBytes = 4 * kPanelOutputs;

/// Bytes of one group of a panel: of its codes, and of all.
constexpr int64_t GroupCodeBytes(const GroupScheme& scheme) {
  return scheme.group / StripeInputs(scheme.bits) * kStripeBytes;
}
constexpr int64_t GroupBytes(const GroupScheme& scheme) {
  return GroupCodeBytes(scheme) + (scheme.minimum ? 2 : 1) * 2 * kPanelOutputs;
}

/// WeightFormat's functions for a scheme.
int64_t GroupPanelBytes(const GroupScheme& scheme, int64_t inputs);
void PackGroups(const GroupScheme& scheme, const float* weights, int64_t rows,
                int64_t inputs, int64_t column, uint8_t* panel);
void PackBlocks(const GroupScheme& scheme, const uint8_t* blocks, int64_t rows,
                int64_t inputs, int64_t column, uint8_t* panel);
void ReadGroups(const GroupScheme& scheme, const uint8_t* panel, int64_t inputs,
                int64_t column, float* out);

/// Products of the formats with some bits and minimum.
struct GroupProducts {
  void (*multiply)(const PanelTask& task);
  void (*multiply_row)(const RowPanels& task);
};

/// The rows of a scheme for the table of formats. `exact` may be null.
template <int kBits, int64_t kGroup, bool kMinimum>
struct GroupRows {
  static constexpr GroupScheme kScheme = {kBits, kGroup, kMinimum};

  static constexpr WeightFormat Row(const char* name, int id,
                                    GroupProducts products,
                                    const WeightFormat* exact) {
    return {
        .name = name,
        .id = id,
        .panel_bytes =
            [](int64_t inputs) { return GroupPanelBytes(kScheme, inputs); },
        .pack =
            [](const float* weights, int64_t rows, int64_t inputs,
               int64_t column, uint8_t* panel) {
              PackGroups(kScheme, weights, rows, inputs, column, panel);
            },
        .read =
            [](const uint8_t* panel, int64_t inputs, int64_t column,
               float* out) { ReadGroups(kScheme, panel, inputs, column, out); },
        .multiply = products.multiply,
        .multiply_row = products.multiply_row,
        .scheme = &kScheme,
        .pack_blocks =
            [](const uint8_t* blocks, int64_t rows, int64_t inputs,
               int64_t column, uint8_t* panel) {
              PackBlocks(kScheme, blocks, rows, inputs, column, panel);
            },
        .exact = exact,
        .panels_together = exact == nullptr ? 1 : kPanelsTogether,
    };
  }
};

}  // namespace tarn
