// What passes over chunks share: rows in place, states in panels of two vectors
// and their update.

#if defined(TARN_KERNELS_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_PANELS_INL_H_
#undef TARN_KERNELS_PANELS_INL_H_
#else
#define TARN_KERNELS_PANELS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/tensor_view.h"
#include "hwy/highway.h"
#include "kernels/prefetch-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE void ZeroRows(float* data, int64_t begin, int64_t end, int64_t ld) {
  if (begin < end) {
    std::memset(data + begin * ld, 0,
                static_cast<size_t>((end - begin) * ld) * sizeof(float));
  }
}

// f(integral_constant<DType>) for a dtype known at run time.
template <class F>
HWY_INLINE void WithDType(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kF32:
      return f(std::integral_constant<DType, DType::kF32>());
    case DType::kBF16:
      return f(std::integral_constant<DType, DType::kBF16>());
    case DType::kF16:
      return f(std::integral_constant<DType, DType::kF16>());
  }
}

// A chunk's rows in place: row r at `data + r * stride` bytes.
struct ChunkView {
  const char* data;
  int64_t stride;
  ChunkView(const char* d, int64_t s) : data(d), stride(s) {}
  ChunkView(const TensorView& view, int64_t batch, int64_t token, int64_t head,
            int64_t column)
      : data(view.Row(batch, token, head) +
             column * static_cast<int64_t>(DTypeBytes(view.dtype))),
        stride(view.stride[1] * static_cast<int64_t>(DTypeBytes(view.dtype))) {}
};

// States are stored in panels of kPanel columns, each [padded rows, kPanel], so
// that a product reads memory from front to back and a panel stays in L1
// between its read and its update. Panel of column v (a multiple of kPanel):
// v * rows.

// S[k, v] += sum_t a[t, k] b[t, v] over `depth` tokens.
HWY_MAYBE_UNUSED static HWY_NOINLINE void UpdatePanel(
    const float* a, int64_t ld_a, const float* b, int64_t ld_b, int64_t depth,
    int64_t rows, int64_t vectors, float* panel, RowPrefetcher& prefetch) {
  const auto run = [&](auto n) HWY_ATTR {
    ForRowTiles(rows, [&](auto m, int64_t k) HWY_ATTR {
      Tile<decltype(m)::value, decltype(n)::value> tile;
      tile.Load(panel + k * kPanel, kPanel);
      tile.AddProduct(a + k, 1, ld_a, b, ld_b, depth,
                      [&]() HWY_ATTR { prefetch.Next(); });
      tile.Store(panel + k * kPanel, kPanel);
    });
  };
  if (vectors == 2) return run(RowCount<2>());
  run(RowCount<1>());
}

// Panels of a state [padded rows, padded columns] from dense [rows, width],
// columns [column, column + count); zeros elsewhere. A null source gives zeros.
HWY_INLINE void LoadState(const float* from, int64_t rows, int64_t width,
                          int64_t column, int64_t count, float* to,
                          int64_t padded_rows) {
  std::memset(
      to, 0,
      static_cast<size_t>(padded_rows * PadState(count)) * sizeof(float));
  if (from == nullptr) return;
  for (int64_t v = 0; v < count; v += kPanel) {
    for (int64_t k = 0; k < rows; ++k) {
      std::memcpy(
          to + v * padded_rows + k * kPanel, from + k * width + column + v,
          static_cast<size_t>(std::min(kPanel, count - v)) * sizeof(float));
    }
  }
}

HWY_INLINE void StoreState(const float* from, int64_t padded_rows, int64_t rows,
                           int64_t width, int64_t column, int64_t count,
                           float* to) {
  if (to == nullptr) return;
  for (int64_t v = 0; v < count; v += kPanel) {
    for (int64_t k = 0; k < rows; ++k) {
      std::memcpy(
          to + k * width + column + v, from + v * padded_rows + k * kPanel,
          static_cast<size_t>(std::min(kPanel, count - v)) * sizeof(float));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
