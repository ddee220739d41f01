// A step: a few rows, of one sequence or several, through all layers in one
// region of the workers (core/threads/team.h). What a mixer or a feed-forward
// part does is cut into phases, and a phase into units (heads, channels, panels
// of a matrix). All units of a phase are done before one of the next begins, so
// a unit may read what the phases before it wrote, and writes what no other
// unit of its phase reads or writes.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/matmul/matmul.h"
#include "runtime/mixer/mixer_block.h"

namespace tarn {

/// The most rows of a step: with more, reading the weights is no longer what
/// takes the time.
inline constexpr int64_t kStepRows = 12;

/// Some units of a phase, at least one, for one worker: of all rows.
struct StepShare {
  int64_t layer = 0;
  int phase = 0;
  int64_t begin = 0, end = 0;  // a range of the phase's units
  int worker = 0;
  int64_t rows = 1;
  /// What the worker reads after them, for products to prefetch; null: nothing.
  const void* next = nullptr;
};

/// A product of the step's rows. No matrix, or an empty one: nothing.
struct StepProduct {
  const WeightMatrix* w = nullptr;
  Rows x;  // [w->inputs()]
  Rows y;  // [w->outputs()]
  MatMulFinish finish = MatMulFinish::kStore;
  /// Where the rows of y are, instead of `y`.
  float* const* y_rows = nullptr;
};

/// Units of a phase of products that do not read one another: the panels of
/// their matrices, in order.
int64_t PanelUnits(std::initializer_list<const WeightMatrix*> matrices);
/// Where such a unit begins to read.
const void* PanelAt(std::initializer_list<const WeightMatrix*> matrices,
                    int64_t unit);
/// The share's panels of such products, with the bits of PackedMatMul.
void RunProducts(std::initializer_list<StepProduct> products,
                 const StepShare& share);

/// Columns of a row, and how many.
struct StepColumns {
  int64_t begin = 0, count = 0;
};
/// The columns of a matrix's outputs that a share of its panels makes, where
/// the matrix's panels are units from `first` on.
StepColumns ColumnsOfPanels(const WeightMatrix& w, const StepShare& share,
                            int64_t first = 0);
/// Units of `each` columns: how many, and the columns of a share.
int64_t ColumnUnits(int64_t columns, int64_t each);
StepColumns ColumnsOf(int64_t columns, int64_t each, const StepShare& share);

}  // namespace tarn
