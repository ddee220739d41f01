// The machine's limits, as cases like any other: what the SIMD target's
// arithmetic units can do, and what the memory of a buffer's size can.
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "registry.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "limits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Independent chains: two units of latency 4 need 8; 24 leave no doubt, and as
// many as 16 registers hold where there are no more than those.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kChains = 24;
#else
constexpr int kChains = 12;
#endif

// Multiply-adds in registers alone. Returns the FLOP done.
static int64_t FmaChains(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  V acc[kChains];
  const V x = hn::Set(d, 0.999f), y = hn::Set(d, 1e-3f);
  HWY_UNROLL(24)
  for (int i = 0; i < kChains; ++i) acc[i] = hn::Set(d, static_cast<float>(i));
  for (int64_t r = 0; r < rounds; ++r) {
    HWY_UNROLL(24)
    for (int i = 0; i < kChains; ++i) acc[i] = hn::MulAdd(acc[i], x, y);
  }
  HWY_UNROLL(24)
  for (int i = 1; i < kChains; ++i) acc[0] = hn::Add(acc[0], acc[i]);
  *sink = hn::GetLane(hn::SumOfLanes(d, acc[0]));
  return rounds * kChains * 2 * static_cast<int64_t>(hn::Lanes(d));
}

// Sum of `count` floats, a multiple of 8 vectors: loads are all it waits for.
static float ReadSum(const float* data, int64_t count) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V acc[8];
  for (V& a : acc) a = hn::Zero(d);
  for (int64_t i = 0; i + 8 * lanes <= count; i += 8 * lanes) {
    HWY_UNROLL(8)
    for (int j = 0; j < 8; ++j) {
      acc[j] = hn::Add(acc[j], hn::LoadU(d, data + i + j * lanes));
    }
  }
  for (int j = 1; j < 8; ++j) acc[0] = hn::Add(acc[0], acc[j]);
  return hn::GetLane(hn::SumOfLanes(d, acc[0]));
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::bench {
HWY_EXPORT(FmaChains);
HWY_EXPORT(ReadSum);
namespace {

constexpr int64_t kLine = 16;  // floats of a cache line: one sink a worker

class FmaPeak final : public Case {
 public:
  FmaPeak(Params& params, int threads)
      : rounds_(params.Int("rounds", 100000)),
        tasks_(threads),
        sinks_(threads * kLine, DType::kF32) {
    work_.useful_flop = work_.executed_flop = static_cast<double>(
        tasks_ * HWY_DYNAMIC_DISPATCH(FmaChains)(rounds_, sinks_.f32()));
  }
  void Run(Executor& executor) override {
    executor.ParallelFor(tasks_, [&](int64_t task, int) {
      HWY_DYNAMIC_DISPATCH(FmaChains)(rounds_, sinks_.f32() + task * kLine);
    });
  }

 private:
  int64_t rounds_, tasks_;
  Values sinks_;
};

// Memory that was never written is one page of zeros, which stays in cache.
void Touch(AlignedBuffer<float>& buffer, int64_t floats) {
  std::fill_n(buffer.data(), floats, 1.0f);
}

// `bytes` is all that moves: a copy reads one half and writes the other. Each
// worker has one piece, as kernels that stream do.
class Copy final : public Case {
 public:
  Copy(Params& params, int threads)
      : half_(params.Int("bytes", int64_t{1} << 30) / 8 / threads * threads),
        from_(half_),
        to_(half_) {
    Touch(from_, half_);
    Touch(to_, half_);
    work_.bytes = static_cast<double>(half_) * 8;
  }
  void Run(Executor& executor) override {
    const int64_t piece = half_ / executor.width();
    executor.ParallelFor(executor.width(), [&](int64_t task, int) {
      std::memcpy(to_.data() + task * piece, from_.data() + task * piece,
                  piece * sizeof(float));
    });
  }

 private:
  int64_t half_;                    // floats copied
  AlignedBuffer<float> from_, to_;  // huge pages: the most that memory gives
};

class Read final : public Case {
 public:
  Read(Params& params, int threads)
      : piece_(params.Int("bytes", int64_t{1} << 30) / 4 / threads / 128 * 128),
        data_(piece_ * threads),
        sinks_(threads * kLine, DType::kF32) {
    Touch(data_, piece_ * threads);
    work_.bytes = static_cast<double>(piece_ * threads) * 4;
  }
  void Run(Executor& executor) override {
    executor.ParallelFor(executor.width(), [&](int64_t task, int) {
      sinks_.f32()[task * kLine] =
          HWY_DYNAMIC_DISPATCH(ReadSum)(data_.data() + task * piece_, piece_);
    });
  }

 private:
  int64_t piece_;  // floats a worker reads
  AlignedBuffer<float> data_;
  Values sinks_;
};

template <typename T>
std::unique_ptr<Case> Make(Params& params, int threads) {
  return std::make_unique<T>(params, threads);
}

}  // namespace

void RegisterLimits(Registry& registry) {
  registry.push_back({"limit_fma", Make<FmaPeak>});
  registry.push_back({"limit_copy", Make<Copy>});
  registry.push_back({"limit_read", Make<Read>});
}

}  // namespace tarn::bench
#endif  // HWY_ONCE
