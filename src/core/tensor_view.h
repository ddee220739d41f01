// Non-owning views of tensors: pointer, sizes, strides, dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace tarn {

/// A 4-D view [batch, seq_len, heads, width]. The last axis is dense; strides
/// of the other three are in elements and may be anything, zero included.
/// A null `data` means "absent" where a caller says a view is optional.
struct TensorView {
  void* data = nullptr;
  int64_t size[4] = {0, 0, 0, 0};
  int64_t stride[3] = {0, 0, 0};  // of batch, seq_len, heads
  DType dtype = DType::kF32;

  /// Address of the row (b, t, h).
  char* Row(int64_t b, int64_t t, int64_t h) const {
    return static_cast<char*>(data) +
           (b * stride[0] + t * stride[1] + h * stride[2]) *
               static_cast<int64_t>(DTypeBytes(dtype));
  }
  std::vector<int64_t> Shape() const {
    return {size[0], size[1], size[2], size[3]};
  }

  /// A view of densely packed data, last axis fastest.
  static TensorView Dense(void* data, int64_t batch, int64_t seq_len,
                          int64_t heads, int64_t width,
                          DType dtype = DType::kF32) {
    return {data,
            {batch, seq_len, heads, width},
            {seq_len * heads * width, heads * width, width},
            dtype};
  }
};

}  // namespace tarn
