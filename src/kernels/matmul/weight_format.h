// Weight formats: how the numbers of a matrix are stored in memory. A format is
// a row of functions over one panel; everything else knows panels only by
// these.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

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
  /// Some panels times some rows; some panels times one row (matmul.h).
  void (*multiply)(const PanelTask& task);
  void (*multiply_row)(const RowPanels& task);
};

#define TARN_WEIGHT_FORMAT(format) extern const WeightFormat format;
#include "kernels/matmul/formats/list.inc"
#undef TARN_WEIGHT_FORMAT

/// Every format of this build, in the order of formats/list.inc.
std::span<const WeightFormat* const> WeightFormats();

/// Bytes in memory for each weight of a large matrix: 4 for float32.
double BytesPerWeight(const WeightFormat& format);

}  // namespace tarn
