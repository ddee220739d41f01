// Both passes go row by row: blocks of columns, whose weights and sums would
// stay in the first-level cache, took longer, as memory is read in shorter
// pieces.
#include "kernels/row_mixes/row_mixes.h"

#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "kernels/row_tasks.h"
#include "kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_mixes/row_mixes.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/entry_pairs-inl.h"
#include "kernels/panels-inl.h"
#include "kernels/pieces-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// pair(column) for whole pairs of vectors, piece(column, columns left) for the
// vectors of the rest.
template <class Pair, class Piece>
HWY_INLINE void ForMixPairs(int64_t width, const Pair& pair,
                            const Piece& piece) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t i = 0;
  for (; i + 2 * lanes <= width; i += 2 * lanes) pair(i);
  for (; i < width; i += lanes) piece(i, width - i);
}

// pair(column) for the pairs of vectors whose even columns come before their
// odd ones in rows of floats, as in EntryPair of bfloat16. Returns the first
// column after them.
template <class Pair>
HWY_INLINE int64_t ForSplitPairs(const RowMixInputs& in, const Pair& pair) {
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(DF()));
  int64_t i = 0;
  if (in.dtype != DType::kBF16) return i;
  for (; i + step <= in.width; i += step) pair(i);
  return i;
}

// packed: [count, PadRow(width)], the weights in the order of pairs.
static void PackMixWeights(const RowMixInputs& in, float* packed) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t stride = PadRow(in.width);
  float* plain = packed + in.count * stride;  // one row more
  for (int j = 0; j < in.count; ++j) {
    LoadRow(in.weight_dtype, in.weights[j], in.width, plain);
    float* row = packed + j * stride;
    const int64_t rest = ForSplitPairs(in, [&](int64_t i) HWY_ATTR {
      VF even, odd;
      hn::LoadInterleaved2(d, plain + i, even, odd);
      hn::StoreU(even, d, row + i);
      hn::StoreU(odd, d, row + i + lanes);
    });
    std::copy(plain + rest, plain + stride, row + rest);
  }
}

// Sums in the order of pairs as rows of grad_weights.
static void UnpackMixSums(const RowMixInputs& in, const float* sums,
                          float* grad_weights) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int j = 0; j < in.count; ++j) {
    const float* row = sums + j * PadRow(in.width);
    float* plain = grad_weights + j * in.width;
    const int64_t rest = ForSplitPairs(in, [&](int64_t i) HWY_ATTR {
      hn::StoreInterleaved2(hn::LoadU(d, row + i),
                            hn::LoadU(d, row + i + lanes), d, plain + i);
    });
    std::copy(row + rest, row + in.width, plain + rest);
  }
}

static HWY_INLINE EntryPair LoadFloatPair(const float* from) {
  const DF d;
  return {hn::LoadU(d, from), hn::LoadU(d, from + hn::Lanes(d))};
}

static HWY_INLINE EntryPair MulAddPair(const EntryPair& a, const EntryPair& b,
                                       const EntryPair& sum) {
  return {hn::MulAdd(a.a, b.a, sum.a), hn::MulAdd(a.b, b.b, sum.b)};
}

template <DType kType>
static HWY_INLINE void MixRow(const RowMixInputs& in, const float* packed,
                              int64_t row, void* const* outs) {
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  const int64_t first = row * in.width * kBytes, stride = PadRow(in.width);
  const char* x = static_cast<const char*>(in.x) + first;
  const char* delta = static_cast<const char*>(in.delta) + first;
  const auto out = [&](int j) { return static_cast<char*>(outs[j]) + first; };
  ForMixPairs(
      in.width,
      [&](int64_t i) HWY_ATTR {
        const EntryPair now = LoadEntryPair<kType>(x + i * kBytes);
        const EntryPair change = LoadEntryPair<kType>(delta + i * kBytes);
        for (int j = 0; j < in.count; ++j) {
          const EntryPair weight = LoadFloatPair(packed + j * stride + i);
          StoreEntryPair<kType>(MulAddPair(change, weight, now),
                                out(j) + i * kBytes);
        }
      },
      [&](int64_t i, int64_t n) HWY_ATTR {
        const VF now = LoadPiece<kType>(x + i * kBytes, n);
        const VF change = LoadPiece<kType>(delta + i * kBytes, n);
        for (int j = 0; j < in.count; ++j) {
          const VF weight = hn::LoadU(DF(), packed + j * stride + i);
          StorePiece<kType>(hn::MulAdd(change, weight, now),
                            out(j) + i * kBytes, n);
        }
      });
}

static void MixRows(const RowMixInputs& in, const float* packed,
                    void* const* outs, int64_t begin, int64_t end) {
  WithDType(in.dtype, [&](auto type) HWY_ATTR {
    for (int64_t row = begin; row < end; ++row) {
      MixRow<decltype(type)::value>(in, packed, row, outs);
    }
  });
}

// sums: [count, PadRow(width)].
template <DType kType>
static HWY_INLINE void MixRowBack(const RowMixInputs& in, const float* packed,
                                  const RowMixGradients& grad, int64_t row,
                                  float* sums) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  const int64_t first = row * in.width * kBytes, stride = PadRow(in.width);
  const char* delta = static_cast<const char*>(in.delta) + first;
  char* grad_x = static_cast<char*>(grad.grad_x) + first;
  char* grad_delta = static_cast<char*>(grad.grad_delta) + first;
  const auto flow = [&](int j) {
    return static_cast<const char*>(grad.grad_outs[j]) + first;
  };
  ForMixPairs(
      in.width,
      [&](int64_t i) HWY_ATTR {
        const EntryPair change = LoadEntryPair<kType>(delta + i * kBytes);
        EntryPair by_x = {hn::Zero(d), hn::Zero(d)}, by_delta = by_x;
        for (int j = 0; j < in.count; ++j) {
          const EntryPair g = LoadEntryPair<kType>(flow(j) + i * kBytes);
          float* sum = sums + j * stride + i;
          by_x = {hn::Add(by_x.a, g.a), hn::Add(by_x.b, g.b)};
          by_delta =
              MulAddPair(g, LoadFloatPair(packed + j * stride + i), by_delta);
          const EntryPair total = MulAddPair(g, change, LoadFloatPair(sum));
          hn::StoreU(total.a, d, sum);
          hn::StoreU(total.b, d, sum + lanes);
        }
        StoreEntryPair<kType>(by_x, grad_x + i * kBytes);
        StoreEntryPair<kType>(by_delta, grad_delta + i * kBytes);
      },
      [&](int64_t i, int64_t n) HWY_ATTR {
        const VF change = LoadPiece<kType>(delta + i * kBytes, n);
        VF by_x = hn::Zero(d), by_delta = hn::Zero(d);
        for (int j = 0; j < in.count; ++j) {
          const VF g = LoadPiece<kType>(flow(j) + i * kBytes, n);
          float* sum = sums + j * stride + i;
          by_x = hn::Add(by_x, g);
          by_delta =
              hn::MulAdd(g, hn::LoadU(d, packed + j * stride + i), by_delta);
          hn::StoreU(hn::MulAdd(g, change, hn::LoadU(d, sum)), d, sum);
        }
        StorePiece<kType>(by_x, grad_x + i * kBytes, n);
        StorePiece<kType>(by_delta, grad_delta + i * kBytes, n);
      });
}

static void MixRowsBack(const RowMixInputs& in, const float* packed,
                        const RowMixGradients& grad, int64_t begin, int64_t end,
                        float* sums) {
  std::fill(sums, sums + in.count * PadRow(in.width), 0.0f);
  WithDType(in.dtype, [&](auto type) HWY_ATTR {
    for (int64_t row = begin; row < end; ++row) {
      MixRowBack<decltype(type)::value>(in, packed, grad, row, sums);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(PackMixWeights);
HWY_EXPORT(UnpackMixSums);
HWY_EXPORT(MixRows);
HWY_EXPORT(MixRowsBack);

void WantMixData(const RowMixInputs& in, const std::string& name,
                 const void* data) {
  if (data == nullptr && in.rows > 0 && in.width > 0) {
    throw ArgumentError(StrCat("row_mixes: ", name), "data", "a null pointer");
  }
}

void CheckRowMixes(const RowMixInputs& in) {
  if (in.rows < 0 || in.width < 0) {
    throw ShapeError("row_mixes: x", "sizes of at least 0",
                     ShapeText({in.rows, in.width}));
  }
  if (in.count < 1 || in.count > kMostMixes) {
    throw ArgumentError("row_mixes: weights", StrCat("1 to ", kMostMixes),
                        std::to_string(in.count));
  }
  WantMixData(in, "delta", in.delta);
  for (int j = 0; j < in.count; ++j) {
    WantMixData(in, StrCat("weights[", j, "]"), in.weights[j]);
  }
}

// The sums of a task are as long as `count` rows of the call: fewer tasks than
// elsewhere.
WideRowTasks MixTasks(const RowMixInputs& in) {
  return {in.rows, in.width, 32};
}

int64_t PackedFloats(const RowMixInputs& in) {
  return (in.count + 1) * PadRow(in.width);
}

}  // namespace

size_t RowMixesForwardBytes(const RowMixInputs& in) {
  return static_cast<size_t>(PackedFloats(in)) * sizeof(float);
}

void RowMixesForward(const RowMixInputs& in, void* const* outs,
                     Executor& executor, void* workspace) {
  CheckRowMixes(in);
  WantMixData(in, "x", in.x);
  for (int j = 0; j < in.count; ++j) {
    WantMixData(in, StrCat("outs[", j, "]"), outs[j]);
  }
  const WideRowTasks tasks = MixTasks(in);
  if (tasks.count() == 0) return;
  float* packed = static_cast<float*>(workspace);
  HWY_DYNAMIC_DISPATCH(PackMixWeights)(in, packed);
  const auto kernel = HWY_DYNAMIC_DISPATCH(MixRows);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(in, packed, outs, tasks.begin(task), tasks.end(task));
  });
}

// The packed weights, the sums of each task, and their total.
size_t RowMixesGradientBytes(const RowMixInputs& in) {
  const int64_t sums = in.count * PadRow(in.width);
  return static_cast<size_t>(PackedFloats(in) +
                             (MixTasks(in).count() + 1) * sums) *
         sizeof(float);
}

void RowMixesBackward(const RowMixInputs& in, const RowMixGradients& grad,
                      Executor& executor, void* workspace) {
  CheckRowMixes(in);
  for (int j = 0; j < in.count; ++j) {
    WantMixData(in, StrCat("grad_outs[", j, "]"), grad.grad_outs[j]);
  }
  WantMixData(in, "grad_x", grad.grad_x);
  WantMixData(in, "grad_delta", grad.grad_delta);
  WantMixData(in, "grad_weights", grad.grad_weights);
  const WideRowTasks tasks = MixTasks(in);
  const int64_t row = in.count * PadRow(in.width);
  float* packed = static_cast<float*>(workspace);
  float* total = packed + PackedFloats(in);
  float* sums = total + row;
  if (tasks.count() > 0) HWY_DYNAMIC_DISPATCH(PackMixWeights)(in, packed);
  const auto kernel = HWY_DYNAMIC_DISPATCH(MixRowsBack);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    kernel(in, packed, grad, tasks.begin(task), tasks.end(task),
           sums + task * row);
  });
  AddUpTasks(tasks.count(), sums, row, row, total);
  HWY_DYNAMIC_DISPATCH(UnpackMixSums)(in, total, grad.grad_weights);
}

}  // namespace tarn
#endif  // HWY_ONCE
