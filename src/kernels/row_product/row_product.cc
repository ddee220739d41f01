#include "kernels/row_product/row_product.h"

#include <algorithm>

#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_product/row_product.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
// Adds neighbouring lanes: those of `low`, then those of `high`.
static VF Joined(VF low, VF high) {
  const DF d;
  return hn::Add(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
}
#endif

// Rows of x that share a pass over four outputs: their sums fill one vector.
constexpr int64_t kTileRows =
    std::max<int64_t>(1, static_cast<int64_t>(hn::MaxLanes(DF())) / 4);

// The sums of the lanes of four vectors per row, [kTileRows, 4]: neighbours are
// added while vectors are joined, so that four sums take the additions of one.
static void SumsOfLanes(const VF (&sums)[kTileRows][4], float* out) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) out[i] = hn::GetLane(sums[0][i]);
#else
  VF all[kTileRows];
  HWY_UNROLL(4)
  for (int64_t m = 0; m < kTileRows; ++m) {
    all[m] =
        Joined(Joined(sums[m][0], sums[m][1]), Joined(sums[m][2], sums[m][3]));
  }
  for (int64_t left = kTileRows / 2; left > 0; left /= 2) {
    for (int64_t m = 0; m < left; ++m) {
      all[m] = Joined(all[2 * m], all[2 * m + 1]);
    }
  }
  hn::StoreU(all[0], DF(), out);
#endif
}

// Four outputs of kTileRows rows: all of them use a weight once it is loaded.
static void TileOutputs(const float* x, const float* weight, int64_t inputs,
                        float* sums) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF acc[kTileRows][4];
  HWY_UNROLL(4)
  for (int64_t m = 0; m < kTileRows; ++m) {
    HWY_UNROLL(4)
    for (int i = 0; i < 4; ++i) acc[m][i] = hn::Zero(d);
  }
  const auto add = [&](int64_t k, auto load) HWY_ATTR {
    VF w[4];
    HWY_UNROLL(4)
    for (int i = 0; i < 4; ++i) w[i] = load(weight + i * inputs + k);
    HWY_UNROLL(4)
    for (int64_t m = 0; m < kTileRows; ++m) {
      const VF v = load(x + m * inputs + k);
      HWY_UNROLL(4)
      for (int i = 0; i < 4; ++i) acc[m][i] = hn::MulAdd(v, w[i], acc[m][i]);
    }
  };
  int64_t k = 0;
  for (; k + lanes <= inputs; k += lanes) {
    add(k, [&](const float* from) HWY_ATTR { return hn::LoadU(d, from); });
  }
  if (k < inputs) {
    const int64_t left = inputs - k;
    add(k, [&](const float* from) HWY_ATTR { return LoadPart(from, left); });
  }
  SumsOfLanes(acc, sums);
}

// Four outputs of one row, with a vector of partial sums each: four independent
// chains hide the latency of a multiply-add, and x is read once for all four.
static void FourOutputs(const float* x, const float* weight, int64_t inputs,
                        float* sums) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* w0 = weight;
  const float* w1 = weight + inputs;
  const float* w2 = weight + 2 * inputs;
  const float* w3 = weight + 3 * inputs;
  VF a = hn::Zero(d), b = a, c = a, e = a;
  int64_t k = 0;
  for (; k + lanes <= inputs; k += lanes) {
    const VF v = hn::LoadU(d, x + k);
    a = hn::MulAdd(v, hn::LoadU(d, w0 + k), a);
    b = hn::MulAdd(v, hn::LoadU(d, w1 + k), b);
    c = hn::MulAdd(v, hn::LoadU(d, w2 + k), c);
    e = hn::MulAdd(v, hn::LoadU(d, w3 + k), e);
  }
  if (k < inputs) {
    const int64_t left = inputs - k;
    const VF v = LoadPart(x + k, left);
    a = hn::MulAdd(v, LoadPart(w0 + k, left), a);
    b = hn::MulAdd(v, LoadPart(w1 + k, left), b);
    c = hn::MulAdd(v, LoadPart(w2 + k, left), c);
    e = hn::MulAdd(v, LoadPart(w3 + k, left), e);
  }
#if HWY_TARGET == HWY_SCALAR
  const VF all[4] = {a, b, c, e};
  for (int i = 0; i < 4; ++i) sums[i] = hn::GetLane(all[i]);
#else
  VF all = Joined(Joined(a, b), Joined(c, e));
  for (int64_t left = lanes; left > 4; left /= 2) all = Joined(all, all);
  HWY_ALIGN float four[hn::MaxLanes(DF())];
  hn::Store(all, d, four);
  std::copy_n(four, 4, sums);
#endif
}

// The same sum of one output.
static float OneOutput(const float* x, const float* weight, int64_t inputs) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF a = hn::Zero(d);
  int64_t k = 0;
  for (; k + lanes <= inputs; k += lanes) {
    a = hn::MulAdd(hn::LoadU(d, x + k), hn::LoadU(d, weight + k), a);
  }
  if (k < inputs) {
    const int64_t left = inputs - k;
    a = hn::MulAdd(LoadPart(x + k, left), LoadPart(weight + k, left), a);
  }
  return hn::GetLane(hn::SumOfLanes(d, a));
}

// Outputs [begin, end) of one map. Rows are the inner loop: the weights of four
// outputs stay in the L1 cache for all of them.
static void SomeOutputs(const float* x, int64_t rows, int64_t inputs,
                        const RowProductMap& map, int64_t begin, int64_t end) {
  HWY_ALIGN float sums[4 * kTileRows];
  int64_t n = begin;
  for (; n + 4 <= end; n += 4) {
    const auto store = [&](int64_t m, const float* four) HWY_ATTR {
      const hn::CappedTag<float, 4> d;
      float* y = map.y + m * map.outputs + n;
      for (size_t i = 0; i < 4; i += hn::Lanes(d)) {
        auto sum = hn::LoadU(d, four + i);
        if (map.bias != nullptr) {
          sum = hn::Add(sum, hn::LoadU(d, map.bias + n + i));
        }
        hn::StoreU(sum, d, y + i);
      }
    };
    const float* weight = map.weight + n * inputs;
    int64_t m = 0;
    for (; m + kTileRows <= rows; m += kTileRows) {
      TileOutputs(x + m * inputs, weight, inputs, sums);
      for (int64_t i = 0; i < kTileRows; ++i) store(m + i, sums + 4 * i);
    }
    for (; m < rows; ++m) {
      FourOutputs(x + m * inputs, weight, inputs, sums);
      store(m, sums);
    }
  }
  for (; n < end; ++n) {
    for (int64_t m = 0; m < rows; ++m) {
      const float sum =
          OneOutput(x + m * inputs, map.weight + n * inputs, inputs);
      map.y[m * map.outputs + n] =
          map.bias == nullptr ? sum : sum + map.bias[n];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(SomeOutputs);

namespace {

void Check(const float* x, int64_t rows, int64_t inputs,
           const RowProductMap* maps, int64_t count) {
  if (rows < 0 || inputs < 0 || count < 0) {
    throw ShapeError("RowProduct: rows, inputs, count", ">= 0",
                     StrCat(rows, ", ", inputs, ", ", count));
  }
  for (int64_t i = 0; i < count; ++i) {
    const RowProductMap& map = maps[i];
    if (map.outputs < 0) {
      throw ShapeError("RowProduct: outputs", ">= 0", StrCat(map.outputs));
    }
    const bool reads = rows > 0 && inputs > 0 && map.outputs > 0;
    const bool writes = rows > 0 && map.outputs > 0;
    if ((reads && (x == nullptr || map.weight == nullptr)) ||
        (writes && map.y == nullptr)) {
      throw ArgumentError("RowProduct: x, weight, y", "data", "a null pointer");
    }
  }
}

}  // namespace

void RowProductPart(const float* x, int64_t rows, int64_t inputs,
                    const RowProductMap& map, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(SomeOutputs)(x, rows, inputs, map, begin, end);
}

void RowProduct(const float* x, int64_t rows, int64_t inputs,
                const RowProductMap* maps, int64_t count, Executor& executor) {
  Check(x, rows, inputs, maps, count);
  // Each thread gets work that takes longer than waking it.
  constexpr int64_t kLeastWork = 1 << 14;  // multiply-adds
  int64_t outputs = 0;
  for (int64_t i = 0; i < count; ++i) outputs += maps[i].outputs;
  const int64_t work = outputs * inputs * rows;
  const int64_t parts =
      std::clamp<int64_t>(work / kLeastWork, 1, executor.width());
  executor.ParallelFor(parts, [&](int64_t part, int) {
    for (int64_t i = 0; i < count; ++i) {
      // A share of each map, which begins at a multiple of four.
      const int64_t fours = (maps[i].outputs + 3) / 4;
      const int64_t begin = fours * part / parts * 4;
      const int64_t end =
          std::min(fours * (part + 1) / parts * 4, maps[i].outputs);
      RowProductPart(x, rows, inputs, maps[i], begin, end);
    }
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
