// Product of dense float32 matrices, each either as stored or
// transposed: c[m, n] = sum_k a[m, k] b[k, n]. The three products of a trained
// layer y = x W^T are of this kind:
//   y = x W^T,  dx = dy W,  dW = dy^T x
// Rows of a result can be computed by the thread that needs them next, so that
// a chain of products and passes over some rows stays in one core's cache.
#pragma once

#include <cstdint>

#include "core/executor.h"

namespace tarn {

/// Element (i, j) is at data[i * stride + j], that of a transposed operand at
/// data[j * stride + i].
struct GemmOperand {
  const float* data = nullptr;
  int64_t stride = 0;  // in floats, at least the length of a row in memory
  bool transposed = false;
};

struct GemmProblem {
  int64_t rows = 0, columns = 0, depth = 0;  // of c; of the sum
  GemmOperand a;                             // [rows, depth]
  GemmOperand b;       // [depth, columns]; not read where packed_b is set
  float* c = nullptr;  // [rows, columns], overlaps neither a nor b
  int64_t c_stride = 0;
  const float* packed_b = nullptr;  // what GemmPackBlock made of b
  bool add = false;                 // c += a b instead
};

/// Floats of workspace for Gemm: 250 KiB per worker. A workspace must be at a
/// multiple of 64 bytes.
int64_t GemmWorkspaceFloats(const Executor& executor);

/// Sums are taken in parts of 128 of the depth, each in index order, and the
/// parts in order: an element has the same bits whatever else is computed and
/// for any executor. A depth of 0 adds zeros. Allocates nothing; thread-safe
/// with separate workspaces. Throws ShapeError for negative sizes and strides
/// shorter than a row, ArgumentError for null data of a size that is not 0.
void Gemm(const GemmProblem& problem, float* workspace, Executor& executor);

/// `count` products in one parallel loop, each with the bits it has alone. None
/// may read what another writes. Throws like Gemm, before any work.
void GemmMany(const GemmProblem* problems, int64_t count, float* workspace,
              Executor& executor);

/// Floats of workspace for GemmRows.
constexpr int64_t kGemmRowsWorkspaceFloats = 128 * 64 + 384 * (128 + 16);

/// Only rows [begin, end) of c, on the calling thread, with the bits of Gemm.
/// Arguments are not checked. Two ranges may be computed at the same time, each
/// with its own workspace.
void GemmRows(const GemmProblem& problem, int64_t begin, int64_t end,
              float* workspace);

/// The same for columns [column_begin, column_end) only; the first is a
/// multiple of kGemmColumns, and so is the last unless it is the end of all
/// columns.
constexpr int64_t kGemmColumns = 64;
void GemmPart(const GemmProblem& problem, int64_t begin, int64_t end,
              int64_t column_begin, int64_t column_end, float* workspace);

/// An operand b that many ranges of rows meet is copied once for all of them.
/// These are the number of its blocks and the floats that all of them take.
int64_t GemmBlocks(int64_t depth, int64_t columns);
int64_t GemmPackedFloats(int64_t depth, int64_t columns);

/// Writes block `block` of [0, GemmBlocks) into its place in `packed`, which
/// is at a multiple of 64 bytes. Arguments are not checked.
void GemmPackBlock(const GemmOperand& b, int64_t depth, int64_t columns,
                   int64_t block, float* packed);

}  // namespace tarn
