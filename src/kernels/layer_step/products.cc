#include "kernels/layer_step/products.h"

#include <algorithm>

#include "kernels/gemm/gemm.h"
#include "kernels/row_product/row_product.h"

namespace tarn::layer_step {
namespace {

// Rows up to which weights are read in place, which makes such products bound
// by memory. More rows are worth a copy of the weights in panels.
constexpr int64_t kFewRows = 8;

// A share's outputs for few rows: whole cache lines if there are enough
// outputs, else groups of four, which the product requires.
Range Outputs(int64_t outputs, int64_t share, int64_t width) {
  const int64_t unit = outputs >= 16 * width ? 16 : 4;
  const Range units = Part((outputs + unit - 1) / unit, share, width);
  return {std::min(units.begin * unit, outputs),
          std::min(units.end * unit, outputs)};
}

}  // namespace

int64_t Products::Floats(int64_t rows) {
  return rows > kFewRows ? kGemmRowsWorkspaceFloats : 0;
}

Piece Products::PieceOf(int64_t outputs, int64_t share) const {
  if (rows_ <= kFewRows) return {{0, rows_}, Outputs(outputs, share, width_)};
  // Shares take blocks of outputs, and groups of rows if blocks are too few.
  const int64_t blocks = (outputs + kGemmColumns - 1) / kGemmColumns;
  const int64_t columns = std::clamp<int64_t>(blocks, 1, width_);
  const int64_t groups = width_ / columns;
  if (share >= columns * groups) return {};
  const Range some = Part(blocks, share % columns, columns);
  return {Part(rows_, share / columns, groups),
          {std::min(some.begin * kGemmColumns, outputs),
           std::min(some.end * kGemmColumns, outputs)}};
}

void Products::Run(const float* x, int64_t inputs, const LayerStepMap& map,
                   int64_t outputs, const Piece& piece, int64_t share,
                   float* y) const {
  if (map.weight == nullptr || piece.empty()) return;
  const auto [begin, end] = piece.outputs;
  if (rows_ <= kFewRows) {
    RowProductPart(x, rows_, inputs, {map.weight, map.bias, outputs, y}, begin,
                   end);
    return;
  }
  GemmProblem product;
  product.rows = rows_;
  product.columns = outputs;
  product.depth = inputs;
  product.a = {x, inputs, false};
  product.b = {map.weight, inputs, true};
  product.c = y;
  product.c_stride = outputs;
  product.add = map.bias != nullptr;
  if (product.add) {
    for (int64_t row = piece.rows.begin; row < piece.rows.end; ++row) {
      std::copy(map.bias + begin, map.bias + end, y + row * outputs + begin);
    }
  }
  GemmPart(product, piece.rows.begin, piece.rows.end, begin, end,
           workspace_ + share * Floats(rows_));
}

}  // namespace tarn::layer_step
