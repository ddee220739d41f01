// Panels of groups times 2 to kFewRows rows: as for one row, a group is
// unpacked in registers while the next ones are fetched, and all rows meet it
// there.

#if defined(TARN_KERNELS_MATMUL_GROUP_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_MATMUL_GROUP_FEW_INL_H_
#undef TARN_KERNELS_MATMUL_GROUP_FEW_INL_H_
#else
#define TARN_KERNELS_MATMUL_GROUP_FEW_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/matmul/few_rows-inl.h"
#include "kernels/matmul/finish-inl.h"
#include "kernels/matmul/formats/group_terms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Inputs of the rows that are rounded at once: 96 KiB of 16-bit codes.
constexpr int64_t kFewInputs = 4096;

// A group of a panel, and what to fetch meanwhile.
struct StoredGroup {
  const uint8_t* codes;
  const uint8_t* scales;
  const uint8_t* ahead;
  int64_t stripes;
};

// sums[r][v] += stripes [begin, end) of the group from column j on.
template <class K, int kRows, int kVectors, bool kFetch>
HWY_INLINE void FewStripes(const RoundedRows x, const StoredGroup& w,
                           int64_t begin, int64_t end, int64_t j,
                           VI (&sums)[kRows][kVectors]) {
  for (int64_t stripe = begin; stripe < end; ++stripe) {
    const int64_t at = stripe * kStripeBytes + j * 4;
    if constexpr (kFetch) {
      HWY_UNROLL(4)
      for (int64_t i = 0; i < kVectors * kLanes * 4; i += kLine) {
        __builtin_prefetch(w.ahead + at + i, 0, 3);
      }
    }
    VI parts[kVectors][K::kParts];
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      Unpack<typename K::Dot, K::kBits>(
          LoadCodes(w.codes + at + v * kLanes * 4), parts[v]);
    }
    HWY_UNROLL(6)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (int i = 0; i < K::kParts; ++i) {
        const VI step =
            SetStep(x.codes + r * x.stride + (stripe * K::kParts + i) * 4);
        HWY_UNROLL(8)
        for (int v = 0; v < kVectors; ++v) {
          sums[r][v] = K::Dot::Add(sums[r][v], parts[v][i], step);
        }
      }
    }
  }
}

// c [kRows, kPanel] += one group of a panel.
template <class K, int kRows, bool kFetch>
HWY_INLINE void FewTilesOfGroup(const RoundedRows x, const StoredGroup& w,
                                int64_t columns, float* HWY_RESTRICT c) {
  constexpr int kVectors = static_cast<int>(
      std::min<int64_t>(kManyRegisters ? 4 : 2, kPanel / kLanes));
  for (int64_t j = 0; j < columns; j += kVectors * kLanes) {
    VI acc[kRows][kVectors];
    SumGroup<K, kRows, kVectors, K::kParts>(
        x, w.stripes,
        [&](int64_t begin, int64_t end, auto& sums) HWY_ATTR {
          FewStripes<K, kRows, kVectors, kFetch>(x, w, begin, end, j, sums);
        },
        acc);
    const auto scale = [&](int v) HWY_ATTR {
      return LoadScales(w.scales + (j + v * kLanes) * 2);
    };
    const auto minimum = [&](int v) HWY_ATTR {
      return LoadScales(w.scales + (kPanel + j + v * kLanes) * 2);
    };
    AddGroup<K, kRows, kVectors>(x, acc, scale, minimum, c + j);
  }
}

// c [rows, kPanel] += one group of a panel: tiles of 4 rows, and of 3 and 2,
// which have no row left.
template <class K>
HWY_NOINLINE void FewTimesGroup(const RoundedRows& x, int64_t rows,
                                const StoredGroup& w, int64_t columns,
                                float* HWY_RESTRICT c) {
  for (int64_t i = 0; i < (K::kMinimum ? 4 : 2); ++i) {
    __builtin_prefetch(w.ahead + w.stripes * kStripeBytes + i * kLine, 0, 3);
  }
  const auto tile = [&](int64_t r, auto fetch) HWY_ATTR -> int64_t {
    constexpr bool kFetch = decltype(fetch)::value;
    const RoundedRows from = x.From(r);
    switch (const int64_t left = rows - r; left) {
      case 2:
        FewTilesOfGroup<K, 2, kFetch>(from, w, columns, c + r * kPanel);
        return 2;
      case 3:
      case 5:
        FewTilesOfGroup<K, 3, kFetch>(from, w, columns, c + r * kPanel);
        return 3;
      default:
        FewTilesOfGroup<K, 4, kFetch>(from, w, columns, c + r * kPanel);
        return 4;
    }
  };
  int64_t r = tile(0, std::true_type());
  while (r < rows) r += tile(r, std::false_type());
}

// All rows of a task, 2 to kFewRows, times panels [panel, panel + panels), at
// most PanelsAtOnce.
template <class K>
HWY_NOINLINE void MultiplyFewGroups(const PanelTask& task, int64_t panel,
                                    int64_t panels) {
  constexpr int64_t kHeads = kFewInputs / kLeastGroup;
  constexpr int64_t kStride = K::InputBytes(kFewInputs);
  HWY_ALIGN float sums[kPanelsTogether * kFewRows * kPanel];
  HWY_ALIGN uint8_t codes[kFewRows * kStride];
  GroupHead heads[kFewRows * kHeads];
  const WeightMatrix& w = *task.w;
  const GroupScheme& scheme = *w.FormatAt(panel).scheme;
  const int64_t group = scheme.group, group_bytes = GroupBytes(scheme);
  const int64_t rows = task.row_end - task.row_begin, inputs = w.inputs();
  const float* x = task.x + task.row_begin * task.x_stride;
  const int64_t next_sums = inputs > kFewInputs ? rows * kPanel : 0;
  const uint8_t* end =
      w.Panel(panel + panels - 1) + scheme.Blocks(inputs) * group_bytes;
  const auto* next = static_cast<const uint8_t*>(
      panel + panels < task.panel_end ? w.Panel(panel + panels) : task.next);
  for (int64_t k = 0; k < inputs; k += kFewInputs) {
    const int64_t count = std::min(kFewInputs, inputs - k);
    for (int64_t r = 0; r < rows; ++r) {
      RoundRowInputs<typename K::Dot>(x + r * task.x_stride + k, count, group,
                                      K::kOffset, codes + r * kStride,
                                      heads + r * kHeads);
    }
    for (int64_t p = 0; p < panels; ++p) {
      float* c = sums + p * next_sums;
      if (k == 0) SetRows(w.Bias(panel + p), rows, c);
      const uint8_t* at = w.Panel(panel + p) + k / group * group_bytes;
      for (int64_t g = 0; g * group < count; ++g, at += group_bytes) {
        const uint8_t* ahead = at + kAhead;
        if (ahead >= end) ahead = next == nullptr ? at : next + (ahead - end);
        FewTimesGroup<K>(
            {codes + g * K::InputBytes(group), kStride, heads + g, kHeads},
            rows,
            {at, at + group / StripeInputs(K::kBits) * kStripeBytes, ahead,
             group / StripeInputs(K::kBits)},
            w.Outputs(panel + p), c);
      }
      if (k + count == inputs) {
        FinishRows(task, panel + p, task.row_begin, rows, c);
      }
    }
  }
}

template <class K>
void MultiplyGroupsFew(const PanelTask& task) {
  const int64_t at_once = PanelsAtOnce(task, kFewInputs);
  for (int64_t p = task.panel_begin; p < task.panel_end; p += at_once) {
    MultiplyFewGroups<K>(task, p, std::min(at_once, task.panel_end - p));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // TARN_KERNELS_MATMUL_GROUP_FEW_INL_H_
