// Products of formats of groups. With d, m and q_w a group's scale, minimum and
// codes less their offset, and s and q_x the scale and codes of its inputs
// (group_inputs-inl.h), from y = bias, for each group in order:
//   y = fma(d s, sum_k q_w q_x, y)
//   y = fma(m, s sum_k q_x, y)     with a minimum
// The sums are exact in integers and there is nothing else to reassociate, so a
// row has the same bits alone and among others, in any split and on every SIMD
// target; group_product_ref.h is the definition.
//
// One row reads panels as they are stored, at the speed of memory, and so do a
// few (group_few-inl.h). Many rows unpack a group of a panel once (16 KiB at
// most, in L1) for up to kRowChunk rows, whose inputs are rounded once for all
// panels of a task. Where a row has more inputs than are kept, they are rounded
// once for up to kPanelsTogether panels, whose sums (12 KiB a panel) stay in
// the second-level cache.

#if defined(TARN_KERNELS_MATMUL_GROUP_PRODUCT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_MATMUL_GROUP_PRODUCT_INL_H_
#undef TARN_KERNELS_MATMUL_GROUP_PRODUCT_INL_H_
#else
#define TARN_KERNELS_MATMUL_GROUP_PRODUCT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/matmul/formats/group_few-inl.h"
#include "kernels/matmul/formats/group_terms-inl.h"
#include "kernels/matmul/product-inl.h"
#include "kernels/prefetch_to_write.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Inputs of a single row that are rounded at once for all of its panels, 32 KiB
// of 16-bit codes.
constexpr int64_t kRowInputs = 16384;

// acc[n] = head.start + the products of one row's inputs with `stripes` stored
// vectors for each of kVectors vectors of outputs. f(stripe) comes first.
template <class K, int kVectors, class F>
HWY_INLINE void RowStripes(const uint8_t* HWY_RESTRICT x,
                           const uint8_t* HWY_RESTRICT codes, int64_t begin,
                           int64_t end, const F& f, VI* HWY_RESTRICT acc) {
  for (int64_t stripe = begin; stripe < end; ++stripe) {
    f(stripe);
    VI steps[K::kParts];
    HWY_UNROLL(4)
    for (int i = 0; i < K::kParts; ++i) {
      steps[i] = SetStep(x + (stripe * K::kParts + i) * 4);
    }
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      VI parts[K::kParts];
      Unpack<typename K::Dot, K::kBits>(
          LoadCodes(codes + stripe * kStripeBytes + v * kLanes * 4), parts);
      HWY_UNROLL(4)
      for (int i = 0; i < K::kParts; ++i) {
        acc[v] = K::Dot::Add(acc[v], parts[i], steps[i]);
      }
    }
  }
}

// c [kPanel] += one group of a row times one group of a panel, at `group`.
// Prefetches as many bytes from `ahead` on.
template <class K>
HWY_INLINE void RowTimesGroup(const uint8_t* HWY_RESTRICT x, GroupHead head,
                              const uint8_t* HWY_RESTRICT group, int64_t inputs,
                              const uint8_t* ahead, float* HWY_RESTRICT c) {
  using Dot = typename K::Dot;
  constexpr int kVectors =
      static_cast<int>(std::min<int64_t>(8, kPanel / kLanes));
  const DF d;
  const DI di;
  const int64_t stripes = inputs / StripeInputs(K::kBits);
  const uint8_t* heads = group + stripes * kStripeBytes;
  for (int64_t i = 0; i < (K::kMinimum ? 4 : 2); ++i) {
    __builtin_prefetch(ahead + stripes * kStripeBytes + i * kLine, 0, 3);
  }
  for (int64_t j = 0; j < kPanel; j += kVectors * kLanes) {
    const auto fetch = [&](int64_t stripe) HWY_ATTR {
      if (j > 0) return;
      HWY_UNROLL(4)
      for (int64_t i = 0; i < kStripeBytes; i += kLine) {
        __builtin_prefetch(ahead + stripe * kStripeBytes + i, 0, 3);
      }
    };
    VI acc[kVectors];
    for (int v = 0; v < kVectors; ++v) acc[v] = hn::Set(di, head.start);
    if constexpr (Dot::kShortSteps == 0) {
      RowStripes<K, kVectors>(x, group + j * 4, 0, stripes, fetch, acc);
    } else {
      // The first sums apart: a group of 32 then has no others to keep.
      constexpr int64_t kEach = Dot::kShortSteps / K::kParts;
      const auto add = [&](int64_t s) HWY_ATTR {
        VI sums[kVectors];
        for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(di);
        RowStripes<K, kVectors>(x, group + j * 4, s, s + kEach, fetch, sums);
        for (int v = 0; v < kVectors; ++v) {
          acc[v] = Dot::Widen(acc[v], sums[v]);
        }
      };
      add(0);
      for (int64_t s = kEach; s < stripes; s += kEach) add(s);
    }
    const VF scale = hn::Set(d, head.scale), sum = hn::Set(d, head.sum);
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      const int64_t n = j + v * kLanes;
      VF y = FusedMulAdd(hn::Mul(LoadScales(heads + n * 2), scale),
                         hn::ConvertTo(d, acc[v]), hn::LoadU(d, c + n));
      if constexpr (K::kMinimum) {
        y = FusedMulAdd(LoadScales(heads + 2 * kPanel + n * 2), sum, y);
      }
      hn::StoreU(y, d, c + n);
    }
  }
}

// One row through a range of panels.
template <class K>
HWY_NOINLINE void MultiplyGroupsRow(const RowPanels& task) {
  HWY_ALIGN float c[kPanel];
  HWY_ALIGN uint8_t codes[K::InputBytes(kRowInputs)];
  GroupHead heads[kRowInputs / kLeastGroup];
  const WeightMatrix& w = *task.w;
  const GroupScheme& scheme = *w.FormatAt(task.panel_begin).scheme;
  const int64_t group = scheme.group, group_bytes = GroupBytes(scheme);
  const int64_t inputs = w.inputs(), row_bytes = K::InputBytes(group);
  const bool once = inputs <= kRowInputs;
  if (once) {
    RoundRowInputs<typename K::Dot>(task.x, inputs, group, K::kOffset, codes,
                                    heads);
  }
  const uint8_t* end =
      w.Panel(task.panel_end - 1) + scheme.Blocks(inputs) * group_bytes;
  const auto* next = static_cast<const uint8_t*>(task.next);
  for (int64_t p = task.panel_begin; p < task.panel_end; ++p) {
    const uint8_t* at = w.Panel(p);
    std::memcpy(c, w.Bias(p), sizeof(c));
    for (int64_t k = 0; k < inputs; k += kRowInputs) {
      const int64_t count = std::min(kRowInputs, inputs - k);
      if (!once) {
        RoundRowInputs<typename K::Dot>(task.x + k, count, group, K::kOffset,
                                        codes, heads);
      }
      for (int64_t g = 0; g * group < count; ++g, at += group_bytes) {
        const uint8_t* ahead = at + kAhead;
        if (ahead >= end) ahead = next == nullptr ? at : next + (ahead - end);
        RowTimesGroup<K>(codes + g * row_bytes, heads[g], at, group, ahead, c);
      }
    }
    const int64_t columns = w.Outputs(p), first = w.FirstOutput(p);
    const float* residual =
        task.residual == nullptr ? nullptr : task.residual + first;
    FinishRow(task.finish, columns, residual, c);
    std::memcpy(task.y + first, c,
                static_cast<size_t>(columns) * sizeof(float));
  }
}

// A group of a panel that many rows use.
struct UnpackedGroup {
  const uint8_t* steps;  // [steps][kPanel] operands of Dot, 4 bytes each
  const float* scales;   // [kPanel]
  const float* minima;   // [kPanel], with a minimum
  int64_t count;         // of steps
};

template <class K, int kRows, int kVectors>
HWY_INLINE void TileSteps(const RoundedRows x, const uint8_t* HWY_RESTRICT w,
                          int64_t begin, int64_t end,
                          VI (&acc)[kRows][kVectors]) {
  for (int64_t s = begin; s < end; ++s) {
    VI operand[kVectors];
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      operand[v] = LoadCodes(w + s * kStripeBytes + v * kLanes * 4);
    }
    HWY_UNROLL(6)
    for (int r = 0; r < kRows; ++r) {
      const VI step = SetStep(x.codes + r * x.stride + s * 4);
      HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v) {
        acc[r][v] = K::Dot::Add(acc[r][v], operand[v], step);
      }
    }
  }
}

// c [kRows][kVectors vectors], rows kPanel apart, += one group, from column j.
template <class K, int kRows, int kVectors>
HWY_INLINE void GroupTile(const RoundedRows x, const UnpackedGroup& w,
                          int64_t j, float* HWY_RESTRICT c) {
  const DF d;
  const uint8_t* steps = w.steps + j * 4;
  VI acc[kRows][kVectors];
  SumGroup<K, kRows, kVectors, 1>(
      x, w.count,
      [&](int64_t begin, int64_t end, auto& sums) HWY_ATTR {
        TileSteps<K, kRows, kVectors>(x, steps, begin, end, sums);
      },
      acc);
  AddGroup<K, kRows, kVectors>(
      x, acc,
      [&](int v) HWY_ATTR { return hn::Load(d, w.scales + j + v * kLanes); },
      [&](int v) HWY_ATTR { return hn::Load(d, w.minima + j + v * kLanes); },
      c + j);
}

template <class K, int kRows, int kWantVectors>
HWY_INLINE void GroupTileRow(const RoundedRows x, const UnpackedGroup& w,
                             int64_t columns, float* c) {
  constexpr int kVectors =
      static_cast<int>(std::min<int64_t>(kWantVectors, kPanel / kLanes));
  for (int64_t j = 0; j < columns; j += kVectors * kLanes) {
    GroupTile<K, kRows, kVectors>(x, w, j, c);
  }
}

// c [rows, kPanel] += one group of all rows times one of a panel.
template <class K>
HWY_NOINLINE void GroupTiles(const RoundedRows& x, int64_t rows,
                             const UnpackedGroup& w, int64_t columns,
                             float* c) {
  constexpr int kWide = kManyRegisters ? 4 : 2;
  int64_t r = 0;
  for (; r + 6 <= rows; r += 6) {
    GroupTileRow<K, 6, kWide>(x.From(r), w, columns, c + r * kPanel);
  }
  for (; r + 2 <= rows; r += 2) {
    GroupTileRow<K, 2, 4>(x.From(r), w, columns, c + r * kPanel);
  }
  if (r < rows) GroupTileRow<K, 1, 4>(x.From(r), w, columns, c + r * kPanel);
}

// Fills `to` [steps][kPanel] and `scales` [2][kPanel] from a group of a panel
// and prefetches as many bytes from `ahead` on into L2.
template <class K>
HWY_NOINLINE UnpackedGroup UnpackGroup(const uint8_t* HWY_RESTRICT group,
                                       int64_t inputs, const uint8_t* ahead,
                                       uint8_t* HWY_RESTRICT to,
                                       float* HWY_RESTRICT scales) {
  const DF d;
  const DI di;
  const int64_t stripes = inputs / StripeInputs(K::kBits);
  const uint8_t* heads = group + stripes * kStripeBytes;
  const uint8_t* steps = to;
  constexpr bool kAsStored = K::kParts == 1;
  if (kAsStored) steps = group;
  for (int64_t stripe = 0; stripe < stripes; ++stripe) {
    for (int64_t i = 0; i < kStripeBytes; i += kLine) {
      __builtin_prefetch(ahead + stripe * kStripeBytes + i, 0, 2);
    }
    if (kAsStored) continue;
    for (int64_t n = 0; n < kStripeBytes; n += kLanes * 4) {
      VI parts[K::kParts];
      Unpack<typename K::Dot, K::kBits>(
          LoadCodes(group + stripe * kStripeBytes + n), parts);
      for (int i = 0; i < K::kParts; ++i) {
        hn::Store(parts[i], di,
                  reinterpret_cast<int32_t*>(
                      to + (stripe * K::kParts + i) * kStripeBytes + n));
      }
    }
  }
  constexpr int64_t kHeadBytes = (K::kMinimum ? 4 : 2) * kPanel;
  for (int64_t i = 0; i < kHeadBytes; i += kLine) {
    __builtin_prefetch(ahead + stripes * kStripeBytes + i, 0, 2);
  }
  for (int64_t n = 0; n < kHeadBytes / 2; n += kLanes) {
    hn::Store(LoadScales(heads + n * 2), d, scales + n);
  }
  return {steps, scales, scales + kPanel, stripes * K::kParts};
}

// Rounded inputs of many rows, in blocks of kBlockInputs with all rows of a
// block together: 96 KiB, which stay in L2, of which a block is in L1.
template <class K>
struct RoundedBlocks {
  static constexpr int64_t kHeads = kBlockInputs / kLeastGroup;
  static constexpr int64_t kStride = K::InputBytes(kBlockInputs);
  static constexpr int64_t kBlocks = 2048 / kStride;
  static constexpr int64_t kInputs = kBlocks * kBlockInputs;

  // x [rows][count], `stride` apart, count at most kInputs.
  void Round(const float* x, int64_t stride, int64_t rows, int64_t count,
             int64_t group) {
    for (int64_t b = 0; b * kBlockInputs < count; ++b) {
      const int64_t k = b * kBlockInputs;
      for (int64_t r = 0; r < rows; ++r) {
        RoundRowInputs<typename K::Dot>(
            x + r * stride + k, std::min(kBlockInputs, count - k), group,
            K::kOffset, codes + (b * kRowChunk + r) * kStride,
            heads + (b * kRowChunk + r) * kHeads);
      }
    }
  }
  // Those of inputs [k, k + a group).
  RoundedRows At(int64_t k, int64_t group) const {
    const int64_t first = k / kBlockInputs * kRowChunk;
    const int64_t in_block = k % kBlockInputs;
    return {codes + first * kStride + K::InputBytes(in_block), kStride,
            heads + first * kHeads + in_block / group, kHeads};
  }

  HWY_ALIGN uint8_t codes[kBlocks * kRowChunk * kStride];
  GroupHead heads[kBlocks * kRowChunk * kHeads];
};

// Rows [row, row + rows), at most kRowChunk, times panels
// [panel, panel + panels), at most PanelsAtOnce.
template <class K>
HWY_NOINLINE void MultiplyGroupBlock(const PanelTask& task, int64_t row,
                                     int64_t rows, int64_t panel,
                                     int64_t panels) {
  HWY_ALIGN float sums[kPanelsTogether * kRowChunk * kPanel];
  HWY_ALIGN uint8_t unpacked[kBlockInputs / K::Dot::kStepInputs * kStripeBytes];
  HWY_ALIGN float scales[2 * kPanel];
  using Rounded = RoundedBlocks<K>;
  Rounded rounded;
  const WeightMatrix& w = *task.w;
  const GroupScheme& scheme = *w.FormatAt(panel).scheme;
  const int64_t group = scheme.group, group_bytes = GroupBytes(scheme);
  const int64_t inputs = w.inputs();
  const int64_t next_sums = inputs > Rounded::kInputs ? rows * kPanel : 0;
  for (int64_t k = 0; k < inputs; k += Rounded::kInputs) {
    const int64_t count = std::min(Rounded::kInputs, inputs - k);
    const int64_t groups = scheme.Blocks(count);
    rounded.Round(task.x + row * task.x_stride + k, task.x_stride, rows, count,
                  group);
    for (int64_t p = 0; p < panels; ++p) {
      float* c = sums + p * next_sums;
      if (k == 0) SetRows(w.Bias(panel + p), rows, c);
      const int64_t block = k / group * group_bytes;
      const uint8_t* at = w.Panel(panel + p) + block;
      // What this thread reads next, or what it has read where that is all.
      const uint8_t* next = at;
      if (p + 1 < panels) {
        next = w.Panel(panel + p + 1) + block;
      } else if (k + count < inputs) {
        next = w.Panel(panel) + block + groups * group_bytes;
      }
      const bool last = k + count == inputs;
      for (int64_t g = 0; g < groups; ++g) {
        if (last) {  // the outputs a few rows at a time
          for (int64_t r = g * rows / groups; r < (g + 1) * rows / groups;
               ++r) {
            PrefetchToWrite(
                task.y->Row(row + r) + w.FirstOutput(panel + p),
                w.Outputs(panel + p) * static_cast<int64_t>(sizeof(float)));
          }
        }
        const UnpackedGroup part =
            UnpackGroup<K>(at + g * group_bytes, group, next + g * group_bytes,
                           unpacked, scales);
        GroupTiles<K>(rounded.At(g * group, group), rows, part,
                      w.Outputs(panel + p), c);
      }
      if (last) FinishRows(task, panel + p, row, rows, c);
    }
  }
}

template <class K>
void MultiplyGroups(const PanelTask& task) {
  const int64_t rows = task.row_end - task.row_begin;
  if (rows == 1) {
    float* y = task.y->Row(task.row_begin);
    MultiplyGroupsRow<K>({.x = task.x + task.row_begin * task.x_stride,
                          .w = task.w,
                          .panel_begin = task.panel_begin,
                          .panel_end = task.panel_end,
                          .y = y,
                          .finish = task.finish,
                          .residual = y});
    return;
  }
  if (rows <= K::kFew) {
    MultiplyGroupsFew<K>(task);
    return;
  }
  const int64_t at_once = PanelsAtOnce(task, RoundedBlocks<K>::kInputs);
  for (int64_t r = task.row_begin; r < task.row_end; r += kRowChunk) {
    for (int64_t p = task.panel_begin; p < task.panel_end; p += at_once) {
      MultiplyGroupBlock<K>(task, r, std::min(kRowChunk, task.row_end - r), p,
                            std::min(at_once, task.panel_end - p));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // TARN_KERNELS_MATMUL_GROUP_PRODUCT_INL_H_
