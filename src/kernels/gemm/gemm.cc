// A block of kDepth x kColumns of b is copied side by side into L1, then all
// a task multiplies its rows by it in register tiles of 6 x 4 vectors. Rows of
// a that run along the depth are read in place; a transposed a is copied block
// by block, because its columns would share few sets of the caches. Tiles begin
// at zero and are added to c: the parts of the sum are short, and so is their
// error.
#include "kernels/gemm/gemm.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/gemm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/tile-inl.h"

#ifndef TARN_GEMM_ONCE
#define TARN_GEMM_ONCE
namespace tarn::gemm {
// Some rows and columns of c: the work of one thread.
struct Part {
  int64_t row_begin, row_end;
  int64_t column_begin, column_end;
};
constexpr int64_t kDepth = 128;
constexpr int64_t kColumns = 64;    // of a block of b, 32 KiB with kDepth
constexpr int64_t kMostRows = 384;  // rows that meet one block of b
// A packed b up to here stays in L2 from one range of rows to the next.
constexpr int64_t kNearFloats = 1 << 17;
constexpr int64_t kMostColumns = 512;  // of c, where rows are copied
// From this stride on, rows of `a` share too few sets of L1 to be read in
// place.
constexpr int64_t kWideStride = 1024;
constexpr int64_t kCopyStride = kDepth + 16;  // no multiple of 256 bytes
constexpr int64_t kBlockFloats = kDepth * kColumns;
// Where the block of b from (k, n) on is in a packed b: panels of columns one
// after another, the depth of each from front to back.
template <typename T>
T* PackedBlock(T* packed, int64_t depth, int64_t k, int64_t n) {
  const int64_t blocks = (depth + kDepth - 1) / kDepth;
  return packed + (n / kColumns * blocks + k / kDepth) * kBlockFloats;
}
static_assert(kGemmRowsWorkspaceFloats ==
              kBlockFloats + kMostRows * kCopyStride);
}  // namespace tarn::gemm
#endif

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace gemm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using namespace tarn::HWY_NAMESPACE;  // NOLINT: rows and tiles of the kernels

#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kWide = 4;  // 24 accumulators of 32 registers
#else
constexpr int kWide = 2;  // 12 of 16
#endif
constexpr int kTall = 6;

// Block [depth, columns] of b from (k, n), padded with zeros to kColumns.
static void CopyB(const GemmOperand& b, int64_t k, int64_t n, int64_t depth,
                  int64_t columns, float* HWY_RESTRICT block) {
  if (!b.transposed) {
    const float* from = b.data + k * b.stride + n;
    const size_t bytes = static_cast<size_t>(columns) * sizeof(float);
    for (int64_t i = 0; i < depth; ++i, from += b.stride, block += kColumns) {
      std::memcpy(block, from, bytes);
      std::fill(block + columns, block + kColumns, 0.0f);
    }
    return;
  }
  const float* from = b.data + n * b.stride + k;
  const int64_t whole = depth / 16 * 16, tall = columns / 16 * 16;
  Transpose(from, b.stride, tall, whole, block, kColumns);
  for (int64_t i = 0; i < depth; ++i) {
    float* row = block + i * kColumns;
    for (int64_t j = i < whole ? tall : 0; j < columns; ++j) {
      row[j] = from[j * b.stride + i];
    }
    std::fill(row + columns, row + kColumns, 0.0f);
  }
}

// Rows [m, m + rows) of a from k, side by side.
static void CopyA(const GemmOperand& a, int64_t m, int64_t k, int64_t rows,
                  int64_t depth, float* HWY_RESTRICT copy) {
  if (!a.transposed) {
    const float* from = a.data + m * a.stride + k;
    const size_t bytes = static_cast<size_t>(depth) * sizeof(float);
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(copy + r * kCopyStride, from + r * a.stride, bytes);
    }
    return;
  }
  const float* from = a.data + k * a.stride + m;
  const int64_t whole = depth / 16 * 16, tall = rows / 16 * 16;
  Transpose(from, a.stride, whole, tall, copy, kCopyStride);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = r < tall ? whole : 0; i < depth; ++i) {
      copy[r * kCopyStride + i] = from[i * a.stride + r];
    }
  }
}

// kRows rows of c, `columns` columns of the block: c += a times block, or
// c = where `first`.
template <int kRows>
HWY_INLINE void TileRow(const float* HWY_RESTRICT a, int64_t a_stride,
                        const float* HWY_RESTRICT block, int64_t depth,
                        int64_t columns, bool first, float* HWY_RESTRICT c,
                        int64_t c_stride) {
  constexpr int kVectors =
      static_cast<int>(std::min<int64_t>(kWide, kColumns / kLanes));
  constexpr int64_t kStep = kVectors * kLanes;
  const DF d;
  for (int64_t j = 0; j < columns; j += kStep) {
    VF acc[kRows][kVectors];
    HWY_UNROLL(6)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(d);
    }
    const float* HWY_RESTRICT b = block + j;
    for (int64_t k = 0; k < depth; ++k, b += kColumns) {
      VF w[kVectors];
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) w[v] = hn::Load(d, b + v * kLanes);
      HWY_UNROLL(6)
      for (int r = 0; r < kRows; ++r) {
        const VF x = hn::Set(d, a[r * a_stride + k]);
        HWY_UNROLL(4)
        for (int v = 0; v < kVectors; ++v) {
          acc[r][v] = hn::MulAdd(x, w[v], acc[r][v]);
        }
      }
    }
    const bool whole = j + kStep <= columns;
    HWY_ALIGN float edge[kStep];
    HWY_UNROLL(6)
    for (int r = 0; r < kRows; ++r) {
      float* to = c + r * c_stride + j;
      if (whole) {
        HWY_UNROLL(4)
        for (int v = 0; v < kVectors; ++v) {
          float* at = to + v * kLanes;
          hn::StoreU(first ? acc[r][v] : hn::Add(hn::LoadU(d, at), acc[r][v]),
                     d, at);
        }
      } else {
        HWY_UNROLL(4)
        for (int v = 0; v < kVectors; ++v) {
          hn::Store(acc[r][v], d, edge + v * kLanes);
        }
        for (int64_t i = 0; i < columns - j; ++i) {
          to[i] = first ? edge[i] : to[i] + edge[i];
        }
      }
    }
  }
}

// What will be copied next, prefetched a few lines at a time while tiles run:
// `rows` rows of `lines` cache lines. A prefetch never faults.
struct Ahead {
  const float* from = nullptr;
  int64_t stride = 0, rows = 0, lines = 0;
  int64_t row = 0, line = 0;

  // The `rows` by `columns` elements of x from (i, j) on, as stored in
  // memory.
  static Ahead Of(const GemmOperand& x, int64_t i, int64_t j, int64_t rows,
                  int64_t columns) {
    if (x.transposed) {
      std::swap(i, j);
      std::swap(rows, columns);
    }
    return {x.data + i * x.stride + j, x.stride, rows, (columns + 15) / 16};
  }
  HWY_INLINE void Ask(int64_t count) {
    for (; count > 0 && row < rows; --count) {
      __builtin_prefetch(from + row * stride + line * 16, 0, 2);
      if (++line == lines) {
        line = 0;
        ++row;
      }
    }
  }
  int64_t left() const { return (rows - row) * lines - line; }
};

static void TileRows(const float* a, int64_t a_stride, int64_t rows,
                     const float* block, int64_t depth, int64_t columns,
                     bool first, float* c, int64_t c_stride, Ahead& next_b,
                     Ahead& next_a, int64_t lines_of_a) {
  const int64_t lines_of_b = next_b.left() * kTall / rows + 1;
  int64_t r = 0;
  const auto run = [&](auto count) HWY_ATTR {
    constexpr int kRows = decltype(count)::value;
    next_b.Ask(lines_of_b);
    next_a.Ask(lines_of_a);
    TileRow<kRows>(a + r * a_stride, a_stride, block, depth, columns, first,
                   c + r * c_stride, c_stride);
    r += kRows;
  };
  while (r + kTall <= rows) run(std::integral_constant<int, kTall>());
  if (r + 4 <= rows) run(std::integral_constant<int, 4>());
  if (r + 2 <= rows) run(std::integral_constant<int, 2>());
  if (r < rows) run(std::integral_constant<int, 1>());
}

// A part whose rows meet each block of b once.
struct Sweep {
  const GemmProblem& p;
  const Part& part;
  float* block;
  float* copy;

  int64_t rows() const { return part.row_end - part.row_begin; }
  int64_t DepthAt(int64_t k) const { return std::min(kDepth, p.depth - k); }
  int64_t ColumnsAt(int64_t n) const {
    return std::min(kColumns, part.column_end - n);
  }

  // Depth and columns from (k, n); (next_k, next_n) follows.
  void Multiply(const float* a, int64_t stride, int64_t k, int64_t n,
                int64_t next_k, int64_t next_n, Ahead& next_a,
                int64_t lines_of_a) {
    const float* used = block;
    Ahead next_b;
    if (p.packed_b != nullptr) {
      used = PackedBlock(p.packed_b, p.depth, k, n);
      if (p.depth * p.columns > kNearFloats && next_k < p.depth &&
          next_n < part.column_end) {
        next_b = {PackedBlock(p.packed_b, p.depth, next_k, next_n),
                  kBlockFloats, 1, kBlockFloats / 16};
      }
    } else {
      CopyB(p.b, k, n, DepthAt(k), ColumnsAt(n), block);
      if (next_k < p.depth && next_n < part.column_end) {
        next_b =
            Ahead::Of(p.b, next_k, next_n, DepthAt(next_k), ColumnsAt(next_n));
      }
    }
    TileRows(a, stride, rows(), used, DepthAt(k), ColumnsAt(n),
             k == 0 && !p.add, p.c + part.row_begin * p.c_stride + n,
             p.c_stride, next_b, next_a, lines_of_a);
  }

  // The whole depth for some columns, then the next columns: c stays in L2.
  void ColumnsFirst() {
    const float* a = p.a.data + part.row_begin * p.a.stride;
    Ahead none;
    for (int64_t n = part.column_begin; n < part.column_end; n += kColumns) {
      for (int64_t k = 0; k < p.depth; k += kDepth) {
        const bool last = k + kDepth >= p.depth;
        Multiply(a + k, p.a.stride, k, n, last ? 0 : k + kDepth,
                 last ? n + kColumns : n, none, 0);
      }
    }
  }

  // Takes all columns for one block of depth at a time, so that rows of `a` are
  // copied once.
  void DepthFirst() {
    const int64_t panels =
        (part.column_end - part.column_begin + kColumns - 1) / kColumns;
    for (int64_t k = 0; k < p.depth; k += kDepth) {
      CopyA(p.a, part.row_begin, k, rows(), DepthAt(k), copy);
      Ahead next_a;
      if (k + kDepth < p.depth) {
        next_a = Ahead::Of(p.a, part.row_begin, k + kDepth, rows(),
                           DepthAt(k + kDepth));
      }
      const int64_t lines_of_a = 8 * kTall / panels + 1;
      for (int64_t n = part.column_begin; n < part.column_end; n += kColumns) {
        const bool last = n + kColumns >= part.column_end;
        Multiply(copy, kCopyStride, k, n, last ? k + kDepth : k,
                 last ? part.column_begin : n + kColumns, next_a, lines_of_a);
      }
    }
  }
};

static void PackBlock(const GemmOperand& b, int64_t depth, int64_t columns,
                      int64_t block, float* packed) {
  const int64_t blocks = (depth + kDepth - 1) / kDepth;
  const int64_t k = block % blocks * kDepth, n = block / blocks * kColumns;
  CopyB(b, k, n, std::min(kDepth, depth - k), std::min(kColumns, columns - n),
        PackedBlock(packed, depth, k, n));
}

static void Multiply(const GemmProblem& p, const Part& part,
                     float* HWY_RESTRICT workspace) {
  const bool copies = p.a.transposed || p.a.stride >= kWideStride;
  const int64_t most_columns = copies ? kMostColumns : p.columns;
  for (int64_t row = part.row_begin; row < part.row_end; row += kMostRows) {
    for (int64_t column = part.column_begin; column < part.column_end;
         column += most_columns) {
      const Part some = {row, std::min(part.row_end, row + kMostRows), column,
                         std::min(part.column_end, column + most_columns)};
      Sweep sweep = {p, some, workspace, workspace + kBlockFloats};
      copies ? sweep.DepthFirst() : sweep.ColumnsFirst();
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace gemm
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace gemm {
HWY_EXPORT(Multiply);
HWY_EXPORT(PackBlock);

// The kernel of this machine. With a single target its name is looked up here,
// not among those of both namespaces.
static auto MultiplyKernel() { return HWY_DYNAMIC_DISPATCH(Multiply); }
static auto PackBlockKernel() { return HWY_DYNAMIC_DISPATCH(PackBlock); }

namespace {

int64_t Up(int64_t n, int64_t d) { return (n + d - 1) / d; }

// How c is cut among workers: into groups of rows, of columns of kColumns.
struct Split {
  int64_t row_groups, column_groups;
};

// The cheapest split in units of one row tile against one block: the cost is
// what the busiest worker multiplies and copies.
Split SplitFor(const GemmProblem& p, int64_t width) {
  const int64_t panels = Up(p.columns, kColumns);
  const int64_t most = kMostRows;
  Split best = {1, 1};
  double least = -1;
  for (int64_t columns = 1; columns <= std::min(panels, 4 * width); ++columns) {
    const int64_t fewest = Up(p.rows, most);
    for (int64_t each = 1; each <= 4; each *= 2) {
      const int64_t rows =
          std::clamp<int64_t>(Up(each * width, columns), fewest,
                              std::max<int64_t>(fewest, Up(p.rows, 6)));
      const int64_t tiles = Up(Up(p.rows, rows), 6);
      const int64_t own = Up(panels, columns);
      const double task =
          static_cast<double>(own * tiles) +
          static_cast<double>(own) * (p.b.transposed ? 1.5 : 0.6) +
          (p.a.transposed ? 0.04 * static_cast<double>(tiles) * 6 : 0) + 0.5;
      const double cost = static_cast<double>(Up(rows * columns, width)) * task;
      if (least >= 0 && cost >= least) continue;
      least = cost;
      best = {rows, columns};
    }
  }
  return best;
}

// The ends of group `i` of `groups` over `count` units of `unit`.
int64_t Begin(int64_t i, int64_t groups, int64_t count, int64_t unit) {
  const int64_t units = Up(count, unit);
  return std::min(count, i * units / groups * unit);
}

void CheckOperand(const char* name, const GemmOperand& x, int64_t rows,
                  int64_t columns) {
  const int64_t length = x.transposed ? rows : columns;
  if (rows == 0 || columns == 0) return;
  if (x.data == nullptr) {
    throw ArgumentError(StrCat("Gemm: ", name), "data", "null");
  }
  if (x.stride < length) {
    throw ShapeError(StrCat("Gemm: stride of ", name),
                     StrCat("at least ", length), StrCat(x.stride));
  }
}

void Check(const GemmProblem& p) {
  if (p.rows < 0 || p.columns < 0 || p.depth < 0) {
    throw ShapeError("Gemm: sizes", ">= 0",
                     ShapeText({p.rows, p.columns, p.depth}));
  }
  CheckOperand("a", p.a, p.rows, p.depth);
  if (p.packed_b == nullptr) CheckOperand("b", p.b, p.depth, p.columns);
  CheckOperand("c", {p.c, p.c_stride, false}, p.rows, p.columns);
}

void Clear(const GemmProblem& p, const Part& part) {
  if (p.add) return;
  for (int64_t m = part.row_begin; m < part.row_end; ++m) {
    float* row = p.c + m * p.c_stride;
    std::fill(row + part.column_begin, row + part.column_end, 0.0f);
  }
}

}  // namespace
}  // namespace gemm

int64_t GemmWorkspaceFloats(const Executor& executor) {
  return executor.width() * kGemmRowsWorkspaceFloats;
}

void Gemm(const GemmProblem& problem, float* workspace, Executor& executor) {
  GemmMany(&problem, 1, workspace, executor);
}

void GemmMany(const GemmProblem* problems, int64_t count, float* workspace,
              Executor& executor) {
  using namespace gemm;  // NOLINT: this file's own
  for (int64_t i = 0; i < count; ++i) Check(problems[i]);
  const auto kernel = MultiplyKernel();
  const auto tasks_of = [&](const GemmProblem& p) {
    if (p.rows == 0 || p.columns == 0) return int64_t{0};
    const Split split = SplitFor(p, executor.width());
    return split.row_groups * split.column_groups;
  };
  int64_t tasks = 0;
  for (int64_t i = 0; i < count; ++i) tasks += tasks_of(problems[i]);
  executor.ParallelFor(tasks, [&](int64_t task, int worker) {
    const GemmProblem* p = problems;
    for (int64_t own; task >= (own = tasks_of(*p)); ++p) task -= own;
    const Split split = SplitFor(*p, executor.width());
    const int64_t row = task / split.column_groups;
    const int64_t column = task % split.column_groups;
    const Part part = {
        Begin(row, split.row_groups, p->rows, 6),
        Begin(row + 1, split.row_groups, p->rows, 6),
        Begin(column, split.column_groups, p->columns, kColumns),
        Begin(column + 1, split.column_groups, p->columns, kColumns)};
    if (p->depth == 0) return Clear(*p, part);
    kernel(*p, part, workspace + worker * kGemmRowsWorkspaceFloats);
  });
}

void GemmRows(const GemmProblem& p, int64_t begin, int64_t end,
              float* workspace) {
  GemmPart(p, begin, end, 0, p.columns, workspace);
}

void GemmPart(const GemmProblem& p, int64_t begin, int64_t end,
              int64_t column_begin, int64_t column_end, float* workspace) {
  using namespace gemm;  // NOLINT: this file's own
  if (begin >= end || column_begin >= column_end) return;
  const gemm::Part part = {begin, end, column_begin, column_end};
  if (p.depth == 0) return Clear(p, part);
  MultiplyKernel()(p, part, workspace);
}

int64_t GemmBlocks(int64_t depth, int64_t columns) {
  return gemm::Up(depth, gemm::kDepth) * gemm::Up(columns, gemm::kColumns);
}

int64_t GemmPackedFloats(int64_t depth, int64_t columns) {
  return GemmBlocks(depth, columns) * gemm::kBlockFloats;
}

void GemmPackBlock(const GemmOperand& b, int64_t depth, int64_t columns,
                   int64_t block, float* packed) {
  using namespace gemm;  // NOLINT: this file's own
  PackBlockKernel()(b, depth, columns, block, packed);
}

}  // namespace tarn
#endif  // HWY_ONCE
