// Matrix product with packed weights: y[m, n] = bias[n] + sum_k x[m, k] W[n,
// k].
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "kernels/matmul/weight_matrix.h"

namespace tarn {

/// Where rows of results go: row m goes to rows[m] if `rows` is set, else to
/// data + m * stride. Each row holds outputs() floats.
struct OutputRows {
  float* data = nullptr;
  int64_t stride = 0;  // in floats
  float* const* rows = nullptr;
  float* Row(int64_t m) const {
    return rows != nullptr ? rows[m] : data + m * stride;
  }
};

/// How a product is finished before it is stored. All but the first save a pass
/// over the rows: relu(y), y Phi(y) (the exact GELU), GELU with a tanh, the sum
/// with the old contents, for residual connections, and silu(y) times the old
/// contents.
/// SwiGLU is the product with W3 stored, then the one with W1 finished by
/// kSwiglu in the same place; its bits are those of SwigluForward
/// (kernels/swiglu).
enum class MatMulFinish { kStore, kRelu, kGelu, kGeluTanh, kAdd, kSwiglu };

/// x: `rows` rows of w.inputs() floats, `x_stride` floats apart; y: as many
/// rows of w.outputs() floats that overlap neither x nor each other. rows >= 0.
///
/// For formats of single numbers every y[m, n] is one chain of multiply-adds,
/// fused where the SIMD target fuses: bias[n], then k = 0, 1, ... in order. For
/// formats of groups it is a chain over groups of k, in order, with the inputs
/// of a group rounded to 8 bits (formats/group_product-inl.h): the same bits on
/// all targets. `finish` comes after. So a row has the same bits alone or among
/// others, for any executor; work is split over outputs and rows, never over k.
/// Allocates nothing; takes up to 128 KiB of the stack. Thread-safe. Throws
/// ShapeError for negative rows. A stride that is no multiple of 1024 floats
/// avoids cache conflicts.
void PackedMatMul(const float* x, int64_t x_stride, int64_t rows,
                  const WeightMatrix& w, const OutputRows& y,
                  Executor& executor,
                  MatMulFinish finish = MatMulFinish::kStore);

/// Panels [panel_begin, panel_end) of such a product, on the calling thread:
/// the share of one worker of a Team. Only their outputs are written. What this
/// thread reads `next` (null: nothing) is prefetched in time. Arguments are not
/// checked.
void PackedPanelMatMul(const float* x, int64_t x_stride, int64_t rows,
                       const WeightMatrix& w, int64_t panel_begin,
                       int64_t panel_end, const OutputRows& y,
                       MatMulFinish finish, const void* next);

/// The same of one row, which says what comes after.
struct RowPanels {
  const float* x = nullptr;  // [w.inputs()]
  const WeightMatrix* w = nullptr;
  int64_t panel_begin = 0, panel_end = 0;  // a range of [0, w.panels())
  float* y = nullptr;  // [w.outputs()]; only the panels' part is written
  MatMulFinish finish = MatMulFinish::kStore;
  // The old contents, [w.outputs()]; may be y. kAdd: y = residual + W x;
  // kSwiglu: y = silu(W x) * residual.
  const float* residual = nullptr;
  /// What this thread will read next, prefetched in time; null: nothing.
  const void* next = nullptr;
};

/// PackedMatMul's arithmetic, hence its bits, on the calling thread. Allocates
/// nothing. Thread-safe. Arguments are not checked.
void PackedRowMatMul(const RowPanels& panels);

/// Prefetches `bytes` bytes from `from` on (null: nothing) into L2. Never
/// faults, returns at once.
void FetchMemory(const void* from, int64_t bytes);

}  // namespace tarn
