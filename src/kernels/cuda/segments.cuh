// Segments on the device: which tokens a block works on.
#pragma once

#include <cstdint>

#include "kernels/cuda/sequences.h"
#include "kernels/cuda/tile.cuh"

namespace tarn::cuda {

struct Segment {
  bool exists = false;
  int64_t sequence = 0, batch = 0;  // row of the views
  int64_t first = 0;                // the sequence's first token in it
  int64_t rows = 0;                 // tokens of the sequence
  int64_t index = 0, count = 0;     // segment of the sequence
  int64_t first_slot = 0;           // of segment 0
  int64_t begin = 0, end = 0;       // tokens, from the sequence's first on

  __device__ bool IsFirst() const { return index == 0; }
  __device__ bool IsLast() const { return index + 1 == count; }
};

__device__ inline int64_t FirstSlot(const Sequences& s, int64_t sequence) {
  if (s.cu_seqlens == nullptr) return sequence * s.per_row;
  return s.cu_seqlens[sequence] / s.segment + sequence;
}

__device__ inline Segment SequenceAt(const Sequences& s, int64_t sequence) {
  Segment at;
  at.exists = true;
  at.sequence = sequence;
  at.first_slot = FirstSlot(s, sequence);
  if (s.cu_seqlens == nullptr) {
    at.batch = sequence;
    at.rows = s.rows;
  } else {
    at.first = s.cu_seqlens[sequence];
    at.rows = s.cu_seqlens[sequence + 1] - at.first;
  }
  at.count = (at.rows + s.segment - 1) / s.segment;
  if (at.count < 1) at.count = 1;
  return at;
}

__device__ inline Segment SegmentAt(const Sequences& s, int64_t slot) {
  int64_t sequence = slot / s.per_row;
  if (s.cu_seqlens != nullptr) {
    int64_t below = 0, above = s.count;  // FirstSlot(below) <= slot
    while (above - below > 1) {
      const int64_t middle = (below + above) / 2;
      (FirstSlot(s, middle) <= slot ? below : above) = middle;
    }
    sequence = below;
  }
  Segment at = SequenceAt(s, sequence);
  at.index = slot - at.first_slot;
  if (at.index >= at.count) return {};
  at.begin = at.index * s.segment;
  at.end = at.begin + s.segment < at.rows ? at.begin + s.segment : at.rows;
  return at;
}

/// Rows of the sequence that are in a side's view, and those of them in use.
__device__ inline int64_t RowsIn(const Side& side, const Sequences& s,
                                 const Segment& at) {
  return s.cu_seqlens != nullptr || side.rows > at.rows ? at.rows : side.rows;
}
__device__ inline int64_t TokensIn(const Side& side, const Sequences& s,
                                   const Segment& at) {
  const int64_t rows = RowsIn(side, s, at);
  if (side.lengths == nullptr) return rows;
  const int64_t length = side.lengths[at.batch];
  return length < rows ? length : rows;
}

/// The checkpoint of the state before token t > 0, a multiple of 256.
__device__ inline int64_t CheckpointAt(const Sequences& s, const Segment& at,
                                       int64_t t) {
  return at.batch * (s.rows / 256) + at.first / 256 + t / 256 - 1;
}

/// The rows of value head hv's tensor, from the sequence's first token on.
template <typename T>
__device__ inline Rows<T> RowsAt(const DeviceRows& rows, const Segment& at,
                                 int hv) {
  return {static_cast<T*>(rows.data) + at.batch * rows.stride[0] +
              at.first * rows.stride[1] + hv / rows.group * rows.stride[2],
          rows.stride[1], rows.width, rows.aligned};
}

}  // namespace tarn::cuda
