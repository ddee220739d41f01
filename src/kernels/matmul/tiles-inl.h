// Tiles of results in registers, and how they fetch weights: what the products
// of one row, of few and of many share. product-inl.h says what a Loader is.

#if defined(TARN_KERNELS_MATMUL_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_MATMUL_TILES_INL_H_
#undef TARN_KERNELS_MATMUL_TILES_INL_H_
#else
#define TARN_KERNELS_MATMUL_TILES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/matmul/panel_task.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

constexpr int64_t kPanel = kPanelOutputs;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));

// Accumulators of the tallest tile: 24 of 32 registers, or 12 of 16.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr bool kManyRegisters = true;
#else
constexpr bool kManyRegisters = false;
#endif

// Weights to fetch before they are needed, `lines` of them at each input, into
// L1 (kLocality 3) or L2 (2). A tile takes it by value, which keeps it in
// registers, and calls Pass after.
template <int kLocality>
struct Fetch {
  const char* next;
  int lines;     // at each input
  int64_t left;  // lines that are not fetched yet

  HWY_INLINE void AtInput() {
    for (int line = 0; line < lines; ++line, next += kLine) {
      __builtin_prefetch(next, 0, kLocality);
    }
  }
  void Pass(int64_t depth) {
    next += depth * lines * kLine;
    left -= depth * lines;
    if (left <= 0) lines = 0;
  }
};

// The loader of float32 panels, and of blocks that were widened.
class FloatPanel {
 public:
  static constexpr int64_t kLines = 4;
  static constexpr bool kIsFloat = true;

  FloatPanel(const WeightMatrix& w, int64_t p)
      : at_(reinterpret_cast<const float*>(w.Panel(p))) {}
  explicit FloatPanel(const float* at) : at_(at) {}
  HWY_INLINE FloatPanel From(int64_t input, int64_t output) const {
    return FloatPanel(at_ + input * kPanel + output);
  }
  HWY_INLINE const void* Address() const { return at_; }
  HWY_INLINE VF Load(DF d, int64_t input, int64_t output) const {
    return hn::LoadU(d, at_ + input * kPanel + output);
  }

 private:
  const float* at_;  // [inputs][kPanel]
};

// c[r, v] += sum over `depth` inputs of x[r, k] * panel[k, v], in order of k.
// x: kRows rows; panel: `depth` inputs; c: kRows rows, kPanel apart.
template <int kRows, int kVectors, class Loader, class FetchOf>
HWY_INLINE void Tile(const float* HWY_RESTRICT x, int64_t x_stride,
                     const Loader panel, int64_t depth, float* HWY_RESTRICT c,
                     FetchOf fetch) {
  const DF d;
  VF acc[kRows][kVectors];
  HWY_UNROLL(12)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = hn::LoadU(d, c + r * kPanel + v * kLanes);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    fetch.AtInput();
    VF w[kVectors];
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      w[v] = panel.Load(d, k, v * kLanes);
    }
    HWY_UNROLL(12)
    for (int r = 0; r < kRows; ++r) {
      const VF broadcast = hn::Set(d, x[r * x_stride + k]);
      HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v) {
        acc[r][v] = hn::MulAdd(broadcast, w[v], acc[r][v]);
      }
    }
  }
  HWY_UNROLL(12)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(acc[r][v], d, c + r * kPanel + v * kLanes);
    }
  }
}

// kRows rows, the first `columns` columns of the panel (rounded up to tiles).
template <int kRows, int kWantVectors, class Loader, class FetchOf>
HWY_INLINE void TileRow(const float* x, int64_t x_stride, const Loader& panel,
                        int64_t depth, int64_t columns, float* c,
                        FetchOf& fetch) {
  constexpr int kVectors =
      static_cast<int>(std::min<int64_t>(kWantVectors, kPanel / kLanes));
  // A tile as wide as the panel is no loop, which leaves the number of lines to
  // fetch a constant.
  if constexpr (kVectors * kLanes == kPanel) {
    Tile<kRows, kVectors>(x, x_stride, panel, depth, c, fetch);
    fetch.Pass(depth);
    return;
  }
  for (int64_t j = 0; j < columns; j += kVectors * kLanes) {
    Tile<kRows, kVectors>(x, x_stride, panel.From(0, j), depth, c + j, fetch);
    fetch.Pass(depth);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // TARN_KERNELS_MATMUL_TILES_INL_H_
