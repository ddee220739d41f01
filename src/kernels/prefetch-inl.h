// Prefetches the rows of the next chunk while the products of this one run.

#if defined(TARN_KERNELS_PREFETCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_PREFETCH_INL_H_
#undef TARN_KERNELS_PREFETCH_INL_H_
#else
#define TARN_KERNELS_PREFETCH_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/tensor_view.h"
#include "hwy/highway.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of one head are a whole token apart, too far for the hardware to
// predict. They are prefetched one chunk ahead, spread evenly over the pauses
// between parts of the products: all at once they would fill the line buffers,
// and the products' own loads would wait.
class RowPrefetcher {
 public:
  // Adds the next `tokens` rows of `view` from `row` on.
  void Add(const TensorView& view, const char* row, int64_t width) {
    const int64_t bytes = static_cast<int64_t>(DTypeBytes(view.dtype));
    stream_[streams_++] = {reinterpret_cast<uintptr_t>(row),
                           view.stride[1] * bytes, width * bytes};
  }
  // `pauses`: how often Next will be called.
  void Start(int64_t tokens, int64_t pauses) {
    left_ = rows_ = tokens * streams_;
    pauses_ = pauses;
    // First one line of every page: the page walks, which are long in a virtual
    // machine, then overlap instead of stopping the products one by one.
    for (int n = 0; n < streams_; ++n) {
      const Stream& s = stream_[n];
      const int64_t bytes = std::max<int64_t>(std::abs(s.stride), 1);
      const int64_t step = std::clamp<int64_t>(4096 / bytes, 1, tokens);
      for (int64_t t = 0; t < tokens; t += step) {
        __builtin_prefetch(reinterpret_cast<const char*>(
            s.at + static_cast<uintptr_t>(t * s.stride)));
      }
    }
  }
  // A pause: prefetches this pause's share of the rows.
  HWY_INLINE void Next() {
    if (left_ == 0) return;
    for (due_ += rows_; due_ >= pauses_ && left_ > 0; due_ -= pauses_) Row();
  }

 private:
  struct Stream {
    uintptr_t at;
    int64_t stride, bytes;
  };

  // One row of one tensor. (A prefetch past the tensor does no harm.)
  HWY_INLINE void Row() {
    --left_;
    Stream& s = stream_[next_];
    for (int64_t i = 0; i < s.bytes; i += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(s.at) + i, 0, 2);
    }
    s.at += static_cast<uintptr_t>(s.stride);
    next_ = next_ + 1 == streams_ ? 0 : next_ + 1;
  }

  Stream stream_[8];
  int streams_ = 0, next_ = 0;
  int64_t rows_ = 0, pauses_ = 1, left_ = 0, due_ = 0;
};

// Pauses of one product of the chunk with a state: after 8 rows of every tile.
HWY_INLINE int64_t ProductPauses(int64_t chunk, int64_t key, int64_t value) {
  return std::max<int64_t>(chunk * key * value / (8 * kTileRows * kPanel), 1);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
