// How kernels see tensors and sequences: plain numbers that go by value into a
// launch, and the cut of time into segments.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/tensor_view.h"

namespace tarn::cuda {

/// A TensorView whose heads serve `group` value heads each.
struct DeviceRows {
  void* data = nullptr;
  int64_t stride[3] = {0, 0, 0};  // elements: of batch, seq_len, heads
  int width = 0;
  int group = 1;
  bool aligned = false;  // 16-byte pieces throughout
};

inline DeviceRows RowsOf(const TensorView& view, int64_t value_heads) {
  DeviceRows rows;
  const auto bytes = static_cast<int64_t>(DTypeBytes(view.dtype));
  rows.data = view.data;
  rows.width = static_cast<int>(view.size[3]);
  rows.group =
      static_cast<int>(value_heads / std::max<int64_t>(view.size[2], 1));
  rows.aligned = reinterpret_cast<uintptr_t>(view.data) % 16 == 0 &&
                 view.size[3] * bytes % 16 == 0;
  for (int i = 0; i < 3; ++i) {
    rows.stride[i] = view.size[i] > 1 ? view.stride[i] : 0;
    rows.aligned = rows.aligned && rows.stride[i] * bytes % 16 == 0;
  }
  return rows;
}

/// Sequences of a call and their segments of time, which blocks work on side by
/// side. A row of the batch has `per_row` slots for its segments. A packed
/// sequence n, of which only the device knows where it is, has those from
/// floor(cu[n] / segment) + n on: enough for all its segments.
struct Sequences {
  const int64_t* cu_seqlens = nullptr;  // [count + 1] on the device, or null
  int64_t count = 0;
  int64_t rows = 0;     // tokens of a row of the views
  int64_t segment = 0;  // tokens of a segment, a multiple of 256
  int64_t per_row = 1;
  int64_t slots = 0;
  /// Whether some sequence may have more than one segment.
  bool several = false;
};

/// Cuts sequences so that about `blocks` blocks of one segment and value head
/// exist.
inline Sequences CutSequences(const int64_t* cu_seqlens, int64_t count,
                              int64_t rows, int64_t value_heads,
                              int64_t blocks) {
  constexpr int64_t kUnit = 256;
  Sequences s;
  s.cu_seqlens = cu_seqlens;
  s.count = count;
  s.rows = rows;
  const int64_t lines = cu_seqlens != nullptr ? 1 : std::max<int64_t>(count, 1);
  const int64_t wanted =
      std::max<int64_t>(1, blocks / std::max<int64_t>(1, lines * value_heads));
  s.segment =
      std::max(kUnit, (rows / wanted + (rows % wanted != 0) + kUnit - 1) /
                          kUnit * kUnit);
  s.per_row = std::max<int64_t>(1, (rows + s.segment - 1) / s.segment);
  s.slots =
      cu_seqlens != nullptr ? rows / s.segment + count : count * s.per_row;
  s.several = rows > s.segment;
  return s;
}

/// Which tokens of one side of a call exist: keys, or queries.
struct Side {
  int64_t rows = 0;                  // of the view, if not packed
  const int64_t* lengths = nullptr;  // [B], or all
  const uint8_t* mask = nullptr;     // [B, rows], nonzero = keep
};

}  // namespace tarn::cuda
