// The kernels alone: useful and executed FLOP/s beside the FMA peak of the same
// SIMD target, measured in this process.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "core/executor.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/simd_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_attention/linear_attention_bench.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 12 independent chains of multiply-adds fill two FMA units of latency 4 on
// 16-register targets without spilling. Returns FLOP done.
static int64_t FmaChains(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  V acc[12];
  const V x = hn::Set(d, 0.999f), y = hn::Set(d, 1e-3f);
  HWY_UNROLL(12)
  for (int i = 0; i < 12; ++i) acc[i] = hn::Set(d, static_cast<float>(i));
  for (int64_t r = 0; r < rounds; ++r) {
    HWY_UNROLL(12)
    for (int i = 0; i < 12; ++i) acc[i] = hn::MulAdd(acc[i], x, y);
  }
  HWY_UNROLL(12)
  for (int i = 1; i < 12; ++i) acc[0] = hn::Add(acc[0], acc[i]);
  *sink = hn::GetLane(hn::SumOfLanes(d, acc[0]));
  return rounds * 12 * 2 * static_cast<int64_t>(hn::Lanes(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(FmaChains);
namespace {

void Peak(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  std::vector<float> sinks(pool.width() * 16);
  int64_t flop = 0;
  for (auto _ : state) {
    std::vector<int64_t> done(pool.width());
    pool.ParallelFor(pool.width(), [&](int64_t task, int) {
      done[task] = HWY_DYNAMIC_DISPATCH(FmaChains)(1000000, &sinks[task * 16]);
    });
    for (int64_t n : done) flop += n;
    benchmark::DoNotOptimize(sinks.data());
  }
  state.counters["FLOP"] = benchmark::Counter(static_cast<double>(flop),
                                              benchmark::Counter::kIsRate);
}

// One call's buffers: batch 1, 8 heads.
struct Call {
  LinearAttentionOptions options;
  LinearAttentionInputs in;
  LinearAttentionOutputs out;
  LinearAttentionGradients grad;
  std::vector<std::vector<float>> buffers;
  std::vector<float> denominators;
  std::unique_ptr<void, void (*)(void*)> workspace{nullptr, std::free};

  TensorView Buffer(int64_t seq_len, int64_t heads, int64_t width) {
    buffers.emplace_back(seq_len * heads * width);
    for (size_t i = 0; i < buffers.back().size(); ++i) {
      buffers.back()[i] = static_cast<float>((i * 7919) % 1000) * 2e-3f - 1.0f;
    }
    return TensorView::Dense(buffers.back().data(), 1, seq_len, heads, width);
  }
  Call(int64_t seq_len, int64_t width, int64_t chunk, int threads,
       bool backward) {
    options.chunk_size = chunk;
    in.queries = Buffer(seq_len, 8, width);
    in.keys = Buffer(seq_len, 8, width);
    in.values = Buffer(seq_len, 8, width);
    out.out = Buffer(seq_len, 8, width);
    denominators.resize(seq_len * 8);
    out.denominators = denominators.data();
    grad.out = out.out;
    grad.denominators = denominators.data();
    grad.grad_out = Buffer(seq_len, 8, width);
    grad.grad_queries = Buffer(seq_len, 8, width);
    grad.grad_keys = Buffer(seq_len, 8, width);
    grad.grad_values = Buffer(seq_len, 8, width);
    const size_t bytes =
        LinearAttentionWorkspaceBytes(options, in, threads, backward);
    workspace.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  }
};

// FLOP of the algorithm at C = 16 (map and denominator not counted), whatever
// the chunk size executes.
double UsefulFlop(int64_t seq_len, int64_t width, bool backward) {
  const double k = static_cast<double>(width), c = 16;
  const double token =
      backward ? 10 * k * k + c * 5 * k : 4 * k * k + c * 2 * k;
  return token * static_cast<double>(seq_len) * 8;
}

void Run(benchmark::State& state, bool backward) {
  const int64_t seq_len = state.range(0), width = state.range(1);
  const int threads = static_cast<int>(state.range(3));
  ThreadPool pool(threads);
  Call call(seq_len, width, state.range(2), threads, backward);
  if (backward) {
    Call forward(seq_len, width, state.range(2), threads, false);
    LinearAttentionForward(call.options, call.in, call.out, pool,
                           forward.workspace.get());
  }
  double flop = 0;
  for (auto _ : state) {
    if (backward) {
      LinearAttentionBackward(call.options, call.in, call.grad, pool,
                              call.workspace.get());
    } else {
      LinearAttentionForward(call.options, call.in, call.out, pool,
                             call.workspace.get());
    }
    flop += UsefulFlop(seq_len, width, backward);
  }
  state.counters["useful_FLOP"] =
      benchmark::Counter(flop, benchmark::Counter::kIsRate);
  state.SetLabel(SimdTargetName());
}

void Shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"seq_len", "width", "chunk", "threads"});
  for (int64_t chunk : {16, 32, 64}) b->Args({16384, 64, chunk, 2});
  for (int64_t chunk : {16, 32, 64}) b->Args({16384, 128, chunk, 2});
  b->Args({16384, 64, 0, 1});
  b->Args({16384, 32, 0, 2});
  b->Args({1024, 64, 0, 2});
  b->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(Peak)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Run, forward, false)->Apply(Shapes);
BENCHMARK_CAPTURE(Run, gradient, true)->Apply(Shapes);

}  // namespace
}  // namespace tarn

int main(int argc, char** argv) {
  tarn::ApplySimdTargetFromEnvironment();
  benchmark::Initialize(&argc, argv);
  benchmark::AddCustomContext("simd_target", tarn::SimdTargetName());
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
#endif  // HWY_ONCE
