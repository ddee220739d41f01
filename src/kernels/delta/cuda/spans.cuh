// Where the tensors of a call are on the device: views, the sequences' tokens,
// and the chunks of 64 tokens that they are cut into. Lengths and cu_seqlens
// are read by the kernels alone.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/tensor_view.h"
#include "cuda_device.h"
#include "kernels/delta/cuda/warp_products.cuh"
#include "kernels/recurrence/recurrent_inputs.h"

namespace tarn::cuda::delta {

constexpr int kGroupTokens = 256;  // between checkpoints
constexpr int kValueTile = 32;     // columns of a state that a block keeps
constexpr int kThreads = 256;      // of every block: 8 warps
constexpr int kWarps = kThreads / 32;

// A TensorView for kernels.
struct DeviceView {
  char* data = nullptr;
  int64_t stride[3] = {0, 0, 0};  // elements
  int64_t width = 0;
  DType dtype = DType::kF32;
  bool vectors = false;  // every row begins at a multiple of 16 bytes

  template <typename T>
  __device__ T* Row(int64_t b, int64_t t, int64_t h) const {
    return reinterpret_cast<T*>(data) + b * stride[0] + t * stride[1] +
           h * stride[2];
  }
  // Entry i of a row of any dtype, as float32.
  __device__ float Number(int64_t b, int64_t t, int64_t h, int64_t i) const {
    switch (dtype) {
      case DType::kBF16:
        return ToFloat(Row<bfloat16>(b, t, h)[i]);
      case DType::kF16:
        return ToFloat(Row<half>(b, t, h)[i]);
      default:
        return Row<float>(b, t, h)[i];
    }
  }
  __device__ void SetNumber(int64_t b, int64_t t, int64_t h, int64_t i,
                            float x) const {
    switch (dtype) {
      case DType::kBF16:
        Row<bfloat16>(b, t, h)[i] = FromFloat<bfloat16>(x);
        break;
      case DType::kF16:
        Row<half>(b, t, h)[i] = FromFloat<half>(x);
        break;
      default:
        Row<float>(b, t, h)[i] = x;
    }
  }
};

inline DeviceView OnDevice(const TensorView& view) {
  DeviceView to;
  to.data = static_cast<char*>(view.data);
  to.width = view.size[3];
  to.dtype = view.dtype;
  const auto bytes = static_cast<int64_t>(DTypeBytes(view.dtype));
  to.vectors = reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
  for (int i = 0; i < 3; ++i) {
    to.stride[i] = view.stride[i];
    to.vectors = to.vectors && view.stride[i] * bytes % 16 == 0;
  }
  return to;
}

// One sequence: its row of the views, its first token, its tokens, and the rows
// of the view that belong to it; the slots of its first chunk and checkpoint.
struct Span {
  int64_t sequence, batch, first, tokens, rows, slot, checkpoint;
  __device__ int64_t Chunks() const { return (tokens + kChunk - 1) / kChunk; }
};

// Chunk `index` of a sequence: tokens [first, first + rows) of row `batch`, and
// `padding` rows of the view after them; its slot in the workspace.
struct ChunkRows {
  int64_t batch, first, slot;
  int rows, padding;
};

__device__ __forceinline__ ChunkRows ChunkOf(const Span& s, int64_t index) {
  const int64_t at = index * kChunk;
  const auto within = [&](int64_t left) {
    return static_cast<int>(left < 0 ? 0 : left < kChunk ? left : kChunk);
  };
  const int rows = within(s.tokens - at);
  return {s.batch, s.first + at, s.slot + index, rows,
          within(s.rows - at) - rows};
}

// The sequences of a call. Chunks have slots, a row's one after the other.
// Packed sequences have those from floor(cu[n] / 64) + n on, which leaves each
// the ceil(tokens / 64) slots that it needs, and finds them from cu[n] alone.
struct Sequences {
  const int64_t* lengths = nullptr;
  const int64_t* cu_seqlens = nullptr;
  int64_t count = 0, seq_len = 0;

  // Slots of `unit` tokens: chunks, or groups between checkpoints.
  __host__ __device__ int64_t Slots(int64_t unit = kChunk) const {
    return cu_seqlens != nullptr ? seq_len / unit + count
                                 : count * ((seq_len + unit - 1) / unit);
  }
  __device__ int64_t Within(int64_t token) const {
    return token < 0 ? 0 : token < seq_len ? token : seq_len;
  }
  __device__ Span At(int64_t n) const {
    if (cu_seqlens != nullptr) {
      const int64_t first = Within(cu_seqlens[n]);
      const int64_t end = Within(cu_seqlens[n + 1]);
      const int64_t tokens = end > first ? end - first : 0;
      return {n,
              0,
              first,
              tokens,
              tokens,
              first / kChunk + n,
              first / kGroupTokens};
    }
    const int64_t tokens = lengths != nullptr ? Within(lengths[n]) : seq_len;
    return {n,
            n,
            0,
            tokens,
            seq_len,
            n * ((seq_len + kChunk - 1) / kChunk),
            n * (seq_len / kGroupTokens)};
  }
  // The sequence of a slot of `unit` tokens, and which of its units. Slots that
  // are not used give one beyond the sequence's last.
  __device__ Span OfSlot(int64_t slot, int64_t* index,
                         int64_t unit = kChunk) const {
    if (cu_seqlens == nullptr) {
      // A slot is a block's number, of 32 bits.
      const auto units = static_cast<unsigned>((seq_len + unit - 1) / unit);
      *index = static_cast<unsigned>(slot) % units;
      return At(static_cast<unsigned>(slot) / units);
    }
    int64_t low = 0, high = count;  // the last n whose first slot is <= slot
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (Within(cu_seqlens[middle]) / unit + middle <= slot) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const Span span = At(low);
    *index = slot - (span.first / unit + low);
    return span;
  }
};

// What all kernels of a call take.
struct Call {
  DeviceView queries, keys, values, gates, betas;
  const float* head_gates = nullptr;
  const float* initial_state = nullptr;
  Sequences sequences;
  float scale = 1;
  int64_t heads = 1, value_heads = 1, group = 1, d_key = 1, d_value = 1;

  // Heads and blocks are counted in 32 bits: a division of 64 is a call.
  __device__ int64_t KeyHead(int64_t head) const {
    return static_cast<unsigned>(head) / static_cast<unsigned>(group);
  }
  __host__ __device__ int64_t ValueTiles() const {
    return (d_value + kValueTile - 1) / kValueTile;
  }
};

inline Call OnDevice(const RecurrentOptions& options,
                     const RecurrentInputs& in) {
  Call call;
  call.queries = OnDevice(in.queries);
  call.keys = OnDevice(in.keys);
  call.values = OnDevice(in.values);
  call.gates = OnDevice(in.gates);
  call.betas = OnDevice(in.betas);
  call.head_gates = in.head_gates;
  call.initial_state = in.initial_state;
  call.sequences = {in.lengths, in.cu_seqlens, in.SequenceCount(),
                    in.queries.size[1]};
  call.scale = options.scale;
  call.heads = in.queries.size[2];
  call.value_heads = in.values.size[2];
  call.group = call.value_heads / call.heads;
  call.d_key = in.queries.size[3];
  call.d_value = in.values.size[3];
  return call;
}

// Columns [column, column + kWidth) of the chunk's rows into a tile of 64 rows;
// zeros where there are none. Copies that the caller ends and waits for.
template <int kWidth, typename T>
__device__ __forceinline__ void StartRows(T* tile, const DeviceView& view,
                                          const ChunkRows& chunk, int64_t head,
                                          int64_t column) {
  constexpr int kStride = Stride<T>(kWidth);
  constexpr int kVector = 16 / sizeof(T), kVectors = kWidth / kVector;
  const int64_t columns = view.width - column;
  if (view.vectors && chunk.rows == kChunk && columns >= kWidth) {
    // Whole chunks, nearly all: pieces of 16 bytes a constant distance apart.
    constexpr int kPieces = kChunk * kVectors / kThreads;
    constexpr int kRowsApart = kThreads / kVectors;
    static_assert(kPieces * kThreads == kChunk * kVectors);
    const int row = threadIdx.x / kVectors,
              at = threadIdx.x % kVectors * kVector;
    const T* from = view.Row<T>(chunk.batch, chunk.first, head) + column +
                    row * view.stride[1] + at;
    T* to = tile + row * kStride + at;
    const int64_t apart = kRowsApart * view.stride[1];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      CopyAsync16(to + i * kRowsApart * kStride, from);
      from += apart;
    }
    return;
  }
  if (view.vectors) {
    const T* from = view.Row<T>(chunk.batch, chunk.first, head) + column;
#pragma unroll 4
    for (int i = threadIdx.x; i < kChunk * kVectors; i += kThreads) {
      const int row = i / kVectors, at = i % kVectors * kVector;
      const int64_t left = row < chunk.rows ? columns - at : 0;
      const int valid = static_cast<int>(left < 0         ? 0
                                         : left < kVector ? left
                                                          : kVector);
      CopyAsync16(tile + row * kStride + at,
                  valid == 0 ? view.data
                             : reinterpret_cast<const char*>(
                                   from + row * view.stride[1] + at),
                  valid * static_cast<int>(sizeof(T)));
    }
    return;
  }
  for (int i = threadIdx.x; i < kChunk * kWidth; i += kThreads) {
    const int row = i / kWidth, at = i % kWidth;
    tile[row * kStride + at] =
        row < chunk.rows && at < columns
            ? view.Row<T>(chunk.batch, chunk.first + row, head)[column + at]
            : FromFloat<T>(0.0f);
  }
}

// A dense tile of the workspace, [kRows, kWidth].
template <int kRows, int kWidth, typename T>
__device__ __forceinline__ void StartTile(T* tile, const T* from,
                                          int64_t stride = kWidth) {
  constexpr int kVector = 16 / sizeof(T), kVectors = kWidth / kVector;
  constexpr int kPieces = kRows * kVectors / kThreads;
  constexpr int kRowsApart = kThreads / kVectors;
  static_assert(kPieces * kThreads == kRows * kVectors);
  const int row = threadIdx.x / kVectors, at = threadIdx.x % kVectors * kVector;
  from += row * stride + at;
  tile += row * Stride<T>(kWidth) + at;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    CopyAsync16(tile + i * kRowsApart * Stride<T>(kWidth), from);
    from += kRowsApart * stride;
  }
}

// Rows of a dense tile of which only `columns` are there, zeros beyond.
template <int kRows, int kWidth, typename T>
__device__ __forceinline__ void StartPadded(T* tile, const T* from,
                                            int64_t stride, int64_t columns) {
  constexpr int kVector = 16 / sizeof(T), kVectors = kWidth / kVector;
#pragma unroll 4
  for (int i = threadIdx.x; i < kRows * kVectors; i += kThreads) {
    const int row = i / kVectors, at = i % kVectors * kVector;
    const bool valid = at < columns;  // a multiple of kVector
    CopyAsync16(tile + row * Stride<T>(kWidth) + at,
                valid ? from + row * stride + at : from, valid ? 16 : 0);
  }
}

// The way back.
template <int kRows, int kWidth, typename T>
__device__ __forceinline__ void StoreTile(const T* tile, T* to,
                                          int64_t stride = kWidth) {
  constexpr int kVector = 16 / sizeof(T), kVectors = kWidth / kVector;
  constexpr int kPieces = kRows * kVectors / kThreads;
  constexpr int kRowsApart = kThreads / kVectors;
  static_assert(kPieces * kThreads == kRows * kVectors);
  const int row = threadIdx.x / kVectors, at = threadIdx.x % kVectors * kVector;
  to += row * stride + at;
  tile += row * Stride<T>(kWidth) + at;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    Store(to, Load<uint4>(tile + i * kRowsApart * Stride<T>(kWidth)));
    to += kRowsApart * stride;
  }
}

// Two neighbours of row `row` of the chunk, at an even column of the view;
// zeros for padding.
template <typename T>
__device__ __forceinline__ void StoreRowPair(const DeviceView& view,
                                             const ChunkRows& chunk, int row,
                                             int64_t head, int64_t column,
                                             float first, float second) {
  if (row >= chunk.rows + chunk.padding || column >= view.width) return;
  if (row >= chunk.rows) first = second = 0.0f;
  T* to = view.Row<T>(chunk.batch, chunk.first + row, head) + column;
  if (view.vectors && column + 1 < view.width) {
    StorePair(to, first, second);
    return;
  }
  to[0] = FromFloat<T>(first);
  if (column + 1 < view.width) to[1] = FromFloat<T>(second);
}

// Accumulators [16, 8 kColumns] of a warp into the rows from `first` on of the
// chunk, columns from an even `column` on.
template <typename T, int kColumns>
__device__ __forceinline__ void StoreRows(const DeviceView& view,
                                          const ChunkRows& chunk, int first,
                                          int64_t head, int64_t column,
                                          const float (&d)[kColumns][4]) {
  if (view.vectors && chunk.rows == kChunk &&
      column + 8 * kColumns <= view.width) {
    const int group = WarpLane() / 4, pair = WarpLane() % 4 * 2;
    T* to = view.Row<T>(chunk.batch, chunk.first + first + group, head) +
            column + pair;
    T* low = to + 8 * view.stride[1];
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      StorePair(to + 8 * n, d[n][0], d[n][1]);
      StorePair(low + 8 * n, d[n][2], d[n][3]);
    }
    return;
  }
  ForPairs<kColumns>([&](int n, int row, int col, int i) {
    StoreRowPair<T>(view, chunk, first + row, head, column + col, d[n][i],
                    d[n][i + 1]);
  });
}

// Parts of dynamic shared memory, one after the other.
struct SharedParts {
  size_t bytes = 0;
  // Where `count` numbers of T begin.
  template <typename T>
  __host__ __device__ constexpr size_t Take(size_t count) {
    const size_t at = bytes;
    bytes += (count * sizeof(T) + 15) / 16 * 16;
    return at;
  }
};
template <typename T>
__device__ __forceinline__ T* SharedAt(size_t offset) {
  return reinterpret_cast<T*>(SharedMemory() + offset);
}

}  // namespace tarn::cuda::delta
