// A step: one row of one sequence through all layers in one region of the
// workers (core/threads/team.h). What a mixer or a feed-forward part does is
// cut into phases, and a phase into units (heads, channels, panels of a
// matrix). All units of a phase are done before one of the next begins, so a
// unit may read what the phases before it wrote, and writes what no other unit
// of its phase reads or writes.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/matmul/matmul.h"

namespace tarn {

/// Some units of a phase, at least one, for one worker.
struct StepShare {
  int64_t layer = 0;
  int phase = 0;
  int64_t begin = 0, end = 0;  // a range of the phase's units
  int worker = 0;
  /// What the worker reads after them, for products to prefetch; null: nothing.
  const void* next = nullptr;
};

/// A product of a row. No matrix, or an empty one: nothing.
struct StepProduct {
  const WeightMatrix* w = nullptr;
  const float* x = nullptr;  // [w->inputs()]
  float* y = nullptr;        // [w->outputs()]
  MatMulFinish finish = MatMulFinish::kStore;
  const float* residual = nullptr;  // RowPanels::residual
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
