// Test harness: random problems, the kernel run on them through strided,
// guarded, NaN-poisoned buffers, and the two error measures of the tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/executor.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/linear_attention_ref.h"
#include "kernels/reversed_executor.h"
#include "kernels/simd_target.h"

namespace tarn::testing {

// All maps that the kernels contain.
constexpr FeatureMap kElementwiseMaps[] = {
    FeatureMap::kElu1, FeatureMap::kIdentity, FeatureMap::kRelu,
    FeatureMap::kRelu2, FeatureMap::kSoftplus};

using reference::Problem;

struct Shape {
  int64_t T = 1, S = -1, heads = 1, value_heads = 1, d_key = 1, d_value = 1;
};

inline std::vector<double> Random(int64_t n, std::mt19937_64& rng,
                                  double size = 1.0) {
  std::normal_distribution<double> normal(0.0, size);
  std::vector<double> x(n);
  for (double& v : x) v = normal(rng);
  return x;
}

// 16-bit conversions by value, independent of the kernel's bit tricks.
inline uint16_t F32ToBF16(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if (std::isnan(f)) return 0x7FC0;
  const uint32_t low = bits & 0xFFFF;
  uint32_t high = bits >> 16;
  if (low > 0x8000 || (low == 0x8000 && (high & 1))) ++high;
  return static_cast<uint16_t>(high);
}
inline float BF16ToF32(uint16_t half) {
  const uint32_t bits = uint32_t{half} << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
inline uint16_t F32ToF16(float f) {
  const uint16_t sign = std::signbit(f) ? 0x8000 : 0;
  if (std::isnan(f)) return 0x7E00;
  const double x = std::abs(static_cast<double>(f));
  if (x == 0) return sign;
  int exponent = std::max(std::ilogb(x), -14);
  // nearbyint rounds to even in the default mode.
  double units =
      std::isinf(x) ? 2048 : std::nearbyint(std::ldexp(x, 10 - exponent));
  if (units >= 2048 && !std::isinf(x)) {
    ++exponent;
    units = 1024;
  }
  if (std::isinf(x) || exponent > 15) return sign | 0x7C00;
  if (units < 1024) return static_cast<uint16_t>(sign | int(units));
  return static_cast<uint16_t>(sign | ((exponent + 15) << 10) |
                               (int(units) - 1024));
}
inline float F16ToF32(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  double x = exponent == 0 ? std::ldexp(fraction, -24)
                           : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) x = fraction ? NAN : INFINITY;
  return static_cast<float>((half & 0x8000) ? -x : x);
}

inline float Round(double x, DType dtype) {
  const float f = static_cast<float>(x);
  if (dtype == DType::kBF16) return BF16ToF32(F32ToBF16(f));
  if (dtype == DType::kF16) return F16ToF32(F32ToF16(f));
  return f;
}

// Inputs are rounded to `dtype` first: the reference sees what the kernel sees.
inline Problem MakeProblem(const Shape& shape,
                           const LinearAttentionOptions& options, uint64_t seed,
                           DType dtype = DType::kF32, bool state = true) {
  std::mt19937_64 rng(seed);
  Problem p;
  p.options = options;
  p.seq_len_q = shape.T;
  p.seq_len_k = shape.S < 0 ? shape.T : shape.S;
  p.heads = shape.heads;
  p.value_heads = shape.value_heads;
  p.d_key = shape.d_key;
  p.d_value = shape.d_value;
  p.queries = Random(p.seq_len_q * p.heads * p.d_key, rng);
  p.keys = Random(p.seq_len_k * p.heads * p.d_key, rng);
  p.values = Random(p.seq_len_k * p.value_heads * p.d_value, rng);
  if (options.feature_map == FeatureMap::kIdentity &&
      options.denominator != Denominator::kNone) {
    // Signed features have no positive denominator: use positive ones.
    for (double& x : p.queries) x = std::abs(x) + 0.1;
    for (double& x : p.keys) x = std::abs(x) + 0.1;
  }
  for (auto* part : {&p.queries, &p.keys, &p.values}) {
    for (double& x : *part) x = Round(x, dtype);
  }
  p.kept.assign(p.seq_len_k, true);
  if (state) {
    p.S = Random(p.value_heads * p.d_key * p.d_value, rng);
    p.z = Random(p.value_heads * p.d_key, rng);
    for (double& x : p.S) x = static_cast<float>(x);
    for (double& x : p.z) x = static_cast<float>(std::abs(x) + 0.5);
  }
  return p;
}

// A tensor [batch, seq_len, heads, width] of any dtype, with gaps between rows
// when `spread`, misaligned, guarded: all bytes outside the rows hold a pattern
// that must survive.
class GuardedTensor {
 public:
  GuardedTensor(int64_t batch, int64_t seq_len, int64_t heads, int64_t width,
                DType dtype, bool spread) {
    view_.size[0] = batch;
    view_.size[1] = seq_len;
    view_.size[2] = heads;
    view_.size[3] = width;
    view_.dtype = dtype;
    const int64_t gap = spread ? 3 : 0;
    view_.stride[2] = width + gap;
    view_.stride[1] = heads * view_.stride[2] + gap;
    view_.stride[0] = seq_len * view_.stride[1] + gap;
    const int64_t elements = batch * view_.stride[0] + 16 + gap;
    bytes_.assign(elements * DTypeBytes(dtype), char(0xFF));  // NaN everywhere
    view_.data = bytes_.data() + (8 + (spread ? 1 : 0)) * DTypeBytes(dtype);
  }
  // A copy's view is of the copy's bytes. A moved tensor's bytes stay in place.
  GuardedTensor(const GuardedTensor& other)
      : view_(other.view_), bytes_(other.bytes_) {
    view_.data = bytes_.data() +
                 (static_cast<char*>(other.view_.data) - other.bytes_.data());
  }
  GuardedTensor(GuardedTensor&&) = default;
  GuardedTensor& operator=(const GuardedTensor&) = delete;
  const TensorView& view() const { return view_; }
  void Set(int64_t b, int64_t t, int64_t h, int64_t i, double value) {
    char* at = view_.Row(b, t, h) + i * DTypeBytes(view_.dtype);
    const float f = static_cast<float>(value);
    if (view_.dtype == DType::kF32) {
      std::memcpy(at, &f, 4);
    } else {
      const uint16_t half =
          view_.dtype == DType::kBF16 ? F32ToBF16(f) : F32ToF16(f);
      std::memcpy(at, &half, 2);
    }
  }
  double Get(int64_t b, int64_t t, int64_t h, int64_t i) const {
    const char* at = view_.Row(b, t, h) + i * DTypeBytes(view_.dtype);
    if (view_.dtype == DType::kF32) {
      float f;
      std::memcpy(&f, at, 4);
      return f;
    }
    uint16_t half;
    std::memcpy(&half, at, 2);
    return view_.dtype == DType::kBF16 ? BF16ToF32(half) : F16ToF32(half);
  }
  void Fill(int64_t b, int64_t t0, const std::vector<double>& x) {
    const int64_t heads = view_.size[2], width = view_.size[3];
    for (size_t n = 0; n < x.size(); ++n) {
      const int64_t i = static_cast<int64_t>(n);
      Set(b, t0 + i / (heads * width), i / width % heads, i % width, x[n]);
    }
  }
  std::vector<double> Read(int64_t b, int64_t t0, int64_t seq_len) const {
    std::vector<double> x;
    for (int64_t t = 0; t < seq_len; ++t) {
      for (int64_t h = 0; h < view_.size[2]; ++h) {
        for (int64_t i = 0; i < view_.size[3]; ++i) {
          x.push_back(Get(b, t0 + t, h, i));
        }
      }
    }
    return x;
  }
  // Bytes that belong to no row still hold the pattern.
  bool GuardsIntact() const {
    std::vector<char> copy = bytes_;
    const char* base = bytes_.data();
    for (int64_t b = 0; b < view_.size[0]; ++b) {
      for (int64_t t = 0; t < view_.size[1]; ++t) {
        for (int64_t h = 0; h < view_.size[2]; ++h) {
          std::memset(copy.data() + (view_.Row(b, t, h) - base), 0xFF,
                      view_.size[3] * DTypeBytes(view_.dtype));
        }
      }
    }
    for (char c : copy) {
      if (c != char(0xFF)) return false;
    }
    return true;
  }

 private:
  TensorView view_;
  std::vector<char> bytes_;
};

// Problems of one shape as the inputs of one call: batch rows, or packed along
// time. Holds the tensors that `in` points to.
struct Call {
  bool packed;
  int64_t count, batch;     // problems; rows of the views
  std::vector<int64_t> cu;  // packed: first token of each, and the end
  int64_t seq_len_q, seq_len_k;
  GuardedTensor queries, keys, values;
  std::vector<uint8_t> mask;
  std::vector<float> S, z;
  LinearAttentionInputs in;

  Call(const std::vector<Problem>& problems, DType dtype, bool spread,
       bool is_packed)
      : packed(is_packed),
        count(static_cast<int64_t>(problems.size())),
        batch(packed ? 1 : count),
        cu(Starts(problems)),
        seq_len_q(packed ? cu.back() : problems[0].seq_len_q),
        seq_len_k(packed ? cu.back() : problems[0].seq_len_k),
        queries(batch, seq_len_q, problems[0].heads, problems[0].d_key, dtype,
                spread),
        keys(batch, seq_len_k, problems[0].heads, problems[0].d_key, dtype,
             spread),
        values(batch, seq_len_k, problems[0].value_heads, problems[0].d_value,
               dtype, spread) {
    for (int64_t n = 0; n < count; ++n) {
      const Problem& p = problems[n];
      queries.Fill(Row(n), Start(n), p.queries);
      keys.Fill(Row(n), Start(n), p.keys);
      values.Fill(Row(n), Start(n), p.values);
      for (int64_t j = 0; j < p.seq_len_k; ++j) mask.push_back(p.kept[j]);
      S.insert(S.end(), p.S.begin(), p.S.end());
      z.insert(z.end(), p.z.begin(), p.z.end());
    }
    in.queries = queries.view();
    in.keys = keys.view();
    in.values = values.view();
    in.key_mask = mask.empty() ? nullptr : mask.data();
    if (packed) {
      in.cu_seqlens = cu.data();
      in.sequences = count;
    }
    in.initial_S = S.empty() ? nullptr : S.data();
    in.initial_z = z.empty() ? nullptr : z.data();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Where problem n is: row of the batch, first token.
  int64_t Row(int64_t n) const { return packed ? 0 : n; }
  int64_t Start(int64_t n) const { return packed ? cu[n] : 0; }

  static std::vector<int64_t> Starts(const std::vector<Problem>& problems) {
    std::vector<int64_t> starts = {0};
    for (const Problem& p : problems) {
      starts.push_back(starts.back() + p.seq_len_q);
    }
    return starts;
  }
};

struct AlignedFree {
  void operator()(void* p) const { std::free(p); }
};
using Workspace = std::unique_ptr<void, AlignedFree>;

// Scratch filled with NaN, so that reading it before it is written shows.
inline Workspace MakeWorkspace(size_t bytes) {
  void* p = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
  std::memset(p, 0xFF, (bytes + 127) / 64 * 64);
  return Workspace(p);
}

inline double Rms(const double* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return n == 0 ? 0 : std::sqrt(sum / static_cast<double>(n));
}

// r: RMS of the error over RMS of the reference, over the tensor; m: largest
// error of a row over the RMS of that reference row. A global RMS alone would
// hide a wrong row. `floor`: size of the terms where the sum cancels to zero.
inline void ExpectClose(const std::vector<double>& x,
                        const std::vector<double>& ref, int64_t row, double r,
                        double m, const std::string& what, double floor = 0) {
  ASSERT_EQ(x.size(), ref.size()) << what;
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<double> error(n);
  for (int64_t i = 0; i < n; ++i) error[i] = x[i] - ref[i];
  const double scale = std::max(Rms(ref.data(), n), floor);
  const double tiny = 1e-30;
  EXPECT_LE(Rms(error.data(), n), r * scale + tiny) << what << ": r";
  for (int64_t i = 0; i + row <= n; i += row) {
    double worst = 0;
    for (int64_t j = 0; j < row; ++j) {
      worst = std::max(worst, std::isnan(error[i + j])
                                  ? std::numeric_limits<double>::infinity()
                                  : std::abs(error[i + j]));
    }
    // Errors of rows far below the tensor's scale are noise of cancelling sums.
    const double row_scale = std::max({Rms(&ref[i], row), 1e-3 * scale, floor});
    ASSERT_LE(worst, m * row_scale + tiny)
        << what << ": m, row " << i / row << " of " << n / row;
  }
}

struct Tolerance {
  double r, m;
};
inline Tolerance OutputTolerance(DType dtype) {
  // Output rounding alone gives r = 1.7e-3 (bfloat16) and 2.1e-4 (float16).
  if (dtype == DType::kBF16) return {2e-3, 3e-2};
  if (dtype == DType::kF16) return {3e-4, 4e-3};
  return {2e-6, 5e-5};
}
inline Tolerance GradientTolerance(DType dtype) {
  if (dtype == DType::kF32) return {3e-6, 1e-4};
  return OutputTolerance(dtype);
}

}  // namespace tarn::testing
