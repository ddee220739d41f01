// Weight formats: how the numbers of a matrix are stored in memory. A format is
// a row of functions over one panel; everything else knows panels only by
// these.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/dtype.h"
#include "core/groups/group_scheme.h"

namespace tarn {

struct PanelTask;
struct RowPanels;

/// Outputs in a panel: four AVX-512 vectors, 256 bytes of float32.
inline constexpr int64_t kPanelOutputs = 64;

/// One format. A panel holds W [kPanelOutputs, inputs], and step, prefill and
/// batch read it in one arithmetic: see product-inl.h, which makes the two
/// products of a format from its panel loader.
struct WeightFormat {
  const char* name;  // the word for it: "f32", "bf16"
  int id;            // in state files and the C interface; never reused
  /// Bytes of a panel: a multiple of 64, at most 8 a weight. inputs >= 1.
  int64_t (*panel_bytes)(int64_t inputs);
  /// Rounds W[r, k] = weights[r * inputs + k], 0 <= r < rows, to the format and
  /// stores it as outputs column + r of a panel, column + rows <=
  /// kPanelOutputs. Outputs that are never set stay zero bytes, which must
  /// stand for weights of zero.
  void (*pack)(const float* weights, int64_t rows, int64_t inputs,
               int64_t column, uint8_t* panel);
  /// Output `column` of a panel as held, widened to float32: out [inputs].
  void (*read)(const uint8_t* panel, int64_t inputs, int64_t column,
               float* out);
  /// Some panels times some rows; some panels times one row (matmul.h). All
  /// panels are in this format.
  void (*multiply)(const PanelTask& task);
  void (*multiply_row)(const RowPanels& task);
  /// How groups of numbers are stored; null: one number at a time.
  const GroupScheme* scheme = nullptr;
  /// The type of a file's numbers, where `pack_blocks` takes rows of these.
  std::optional<DType> number = std::nullopt;
  /// Stores rows [rows, scheme->Blocks(inputs)] of blocks, or [rows, inputs] of
  /// numbers, as `pack` does, and changes no number; null where a format takes
  /// neither.
  void (*pack_blocks)(const uint8_t* blocks, int64_t rows, int64_t inputs,
                      int64_t column, uint8_t* panel) = nullptr;
  /// Bytes of a row that `pack_blocks` takes; for formats that have it.
  int64_t StoredRowBytes(int64_t inputs) const {
    return scheme != nullptr
               ? scheme->RowBytes(inputs)
               : static_cast<int64_t>(DTypeBytes(*number)) * inputs;
  }
  /// The same panels with products in float32 of the widened weights, in order
  /// of k: bit-identical to float32 matrices that hold these. null: the
  /// products of this format are such.
  const WeightFormat* exact = nullptr;
  /// Panels that should be in one task with many rows, because they share the
  /// rounding of the inputs; 1: none.
  int64_t panels_together = 1;
};

#define TARN_WEIGHT_FORMAT(format) extern const WeightFormat format;
#include "kernels/matmul/formats/list.inc"
#undef TARN_WEIGHT_FORMAT

#define TARN_GROUP_FORMAT(format) extern const WeightFormat format;
#include "kernels/matmul/formats/group_list.inc"
#undef TARN_GROUP_FORMAT

/// The formats that programs offer, in the order of formats/list.inc.
std::span<const WeightFormat* const> WeightFormats();
/// The formats of groups, those that programs offer and the others.
std::span<const WeightFormat* const> GroupFormats();
/// The one that holds blocks of a scheme as they are; null: none does.
const WeightFormat* FormatOf(const GroupScheme& scheme);
/// format.exact, or the format itself where its products are exact.
const WeightFormat& ExactFormat(const WeightFormat& format);

/// Bytes in memory for each weight of a large matrix: 4 for float32.
double BytesPerWeight(const WeightFormat& format);

}  // namespace tarn
