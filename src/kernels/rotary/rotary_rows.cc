#include "kernels/rotary/rotary_rows.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotary/rotary_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/panels-inl.h"
#include "kernels/pieces-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct RotaryPair {
  VF a, b;
};

// n interleaved pairs; zeros after them.
template <DType kType>
HWY_INLINE RotaryPair LoadTurns(const char* from, int64_t n) {
  const DF d;
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  alignas(64) char part[2 * kRowPad * 4] = {0};
  if (n < static_cast<int64_t>(hn::Lanes(d))) {
    std::memcpy(part, from, static_cast<size_t>(2 * n * kBytes));
    from = part;
  }
  if constexpr (kType == DType::kF32) {
    RotaryPair pair;
    hn::LoadInterleaved2(d, reinterpret_cast<const float*>(from), pair.a,
                         pair.b);
    return pair;
  } else {
    hn::Vec<DU16> a, b;
    hn::LoadInterleaved2(DU16(), reinterpret_cast<const uint16_t*>(from), a, b);
    return {WidenBits<kType>(a), WidenBits<kType>(b)};
  }
}

template <DType kType>
HWY_INLINE void StoreTurns(const RotaryPair& pair, char* to, int64_t n) {
  const DF d;
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  alignas(64) char part[2 * kRowPad * 4];
  const bool whole = n >= static_cast<int64_t>(hn::Lanes(d));
  char* place = whole ? to : part;
  if constexpr (kType == DType::kF32) {
    hn::StoreInterleaved2(pair.a, pair.b, d, reinterpret_cast<float*>(place));
  } else {
    hn::StoreInterleaved2(NarrowBits<kType>(pair.a), NarrowBits<kType>(pair.b),
                          DU16(), reinterpret_cast<uint16_t*>(place));
  }
  if (!whole) std::memcpy(to, part, static_cast<size_t>(2 * n * kBytes));
}

// One head.
template <DType kType, bool kInterleaved>
static HWY_INLINE void RotateHead(const float* cos, const float* sin,
                                  int64_t pairs, int64_t width, VF sign,
                                  const char* x, char* out) {
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const int64_t half = pairs * kBytes;
  for (int64_t i = 0; i < pairs; i += lanes) {
    const int64_t n = pairs - i, at = i * kBytes;
    const VF c = LoadPiece<DType::kF32>(cos + i, n);
    const VF s = hn::Mul(sign, LoadPiece<DType::kF32>(sin + i, n));
    RotaryPair p;
    if constexpr (kInterleaved) {
      p = LoadTurns<kType>(x + 2 * at, n);
    } else {
      p = {LoadPiece<kType>(x + at, n), LoadPiece<kType>(x + half + at, n)};
    }
    const RotaryPair turned = {hn::NegMulAdd(p.b, s, hn::Mul(p.a, c)),
                               hn::MulAdd(p.a, s, hn::Mul(p.b, c))};
    if constexpr (kInterleaved) {
      StoreTurns<kType>(turned, out + 2 * at, n);
    } else {
      StorePiece<kType>(turned.a, out + at, n);
      StorePiece<kType>(turned.b, out + half + at, n);
    }
  }
  if (2 * pairs < width && x != out) {
    std::memcpy(out + 2 * half, x + 2 * half,
                static_cast<size_t>((width - 2 * pairs) * kBytes));
  }
}

// Tokens [begin, end) of all batches.
static void RotateTokens(const RotaryRowsCall& call, const TensorView& out,
                         int64_t begin, int64_t end) {
  const int64_t tokens = call.x.size[1], heads = call.x.size[2];
  const VF sign = hn::Set(DF(), call.inverse ? -1.0f : 1.0f);
  WithDType(call.x.dtype, [&](auto type) HWY_ATTR {
    const auto run = [&](auto interleaved) HWY_ATTR {
      for (int64_t token = begin; token < end; ++token) {
        const int64_t b = token / tokens, t = token % tokens;
        const int64_t row = (call.by_batch ? token : t) * call.pairs;
        for (int64_t h = 0; h < heads; ++h) {
          RotateHead<decltype(type)::value, decltype(interleaved)::value>(
              call.cos + row, call.sin + row, call.pairs, call.x.size[3], sign,
              call.x.Row(b, t, h), out.Row(b, t, h));
        }
      }
    };
    if (call.interleaved) return run(std::true_type());
    run(std::false_type());
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
namespace {

HWY_EXPORT(RotateTokens);

void CheckRotaryRows(const RotaryRowsCall& call, const TensorView& out) {
  const TensorView& x = call.x;
  const bool empty = x.size[0] * x.size[1] * x.size[2] * x.size[3] == 0;
  if (*std::min_element(x.size, x.size + 4) < 0) {
    throw ShapeError("rotary_rows: x", "sizes of at least 0",
                     ShapeText(x.Shape()));
  }
  if (call.pairs < 0 || 2 * call.pairs > x.size[3]) {
    throw ShapeError("rotary_rows: cos, sin",
                     StrCat("at most ", x.size[3] / 2, " columns"),
                     StrCat(call.pairs));
  }
  if (!std::equal(x.size, x.size + 4, out.size)) {
    throw ShapeError("rotary_rows: out", ShapeText(x.Shape()),
                     ShapeText(out.Shape()));
  }
  if (out.dtype != x.dtype) {
    throw DTypeError("rotary_rows: out", DTypeName(x.dtype),
                     DTypeName(out.dtype));
  }
  const auto want = [&](const char* name, const void* data) {
    if (data == nullptr && !empty) {
      throw ArgumentError(StrCat("rotary_rows: ", name), "data",
                          "a null pointer");
    }
  };
  want("x", x.data);
  want("out", out.data);
  if (call.pairs > 0) {
    want("cos", call.cos);
    want("sin", call.sin);
  }
}

}  // namespace

void RotateRows(const RotaryRowsCall& call, const TensorView& out,
                Executor& executor) {
  CheckRotaryRows(call, out);
  const int64_t tokens = call.x.size[0] * call.x.size[1];
  const int64_t entries = call.x.size[2] * call.x.size[3];
  if (entries == 0) return;
  const int64_t share = (16383 + entries) / entries;  // some microseconds
  const auto kernel = HWY_DYNAMIC_DISPATCH(RotateTokens);
  executor.ParallelFor((tokens + share - 1) / share, [&](int64_t task, int) {
    kernel(call, out, task * share, std::min(tokens, (task + 1) * share));
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
