// No kernel takes memory: every benchmark case of the kernels, then the
// options of linear attention that no benchmark has, each counted after one run
// that does not count (it may choose the SIMD target).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "allocation_count.h"
#include "kernels/bench_case.h"
#include "kernels/linear_attention/test_problem.h"
#include "kernels/memory_read/memory_read.h"
#include "kernels/positions/positions.h"
#include "kernels/simd_target.h"
#include "registry.h"

namespace tarn::testing {
namespace {

// Sizes with tails, and enough rows for several tasks.
const std::map<std::string, std::vector<std::string>> kCases = {
    {"relu", {"rows=70 width=37"}},
    {"gelu", {"rows=70 width=37"}},
    {"elu1", {"rows=70 width=37"}},
    {"add", {"rows=70 width=37"}},
    {"adam_step", {"count=100000"}},
    {"aft_simple_forward",
     {"seq_len=70 channels=137", "seq_len=70 channels=137 causal=0"}},
    {"aft_simple_gradient",
     {"seq_len=70 channels=137", "seq_len=70 channels=137 causal=0"}},
    {"aft_simple_step", {"batch=3 channels=137"}},
    {"bias_activation_forward",
     {"rows=300 width=37", "rows=300 width=37 activation=gelu",
      "rows=300 width=37 activation=none dropout=0"}},
    {"bias_activation_gradient",
     {"rows=300 width=37", "rows=300 width=37 activation=gelu",
      "rows=300 width=37 activation=none dropout=0"}},
    {"cross_entropy_forward",
     {"rows=70 classes=1037", "rows=70 classes=1037 dtype=bf16"}},
    {"cross_entropy_gradient",
     {"rows=70 classes=1037", "rows=70 classes=1037 dtype=f16"}},
    {"decay_attention_forward",
     {"seq_len=300 heads=2 d_key=20 d_value=33",
      "seq_len=40 heads=2 value_heads=6 d_key=64 gate=channel",
      "seq_len=40 heads=1 d_key=128 gate=head dtype=bf16",
      "seq_len=40 d_key=16 gate=none dtype=f16"}},
    {"decay_attention_gradient",
     {"seq_len=300 heads=2 d_key=20 d_value=33",
      "seq_len=300 heads=2 d_key=20 checkpoints=0",
      "seq_len=40 heads=2 value_heads=6 d_key=64 gate=channel",
      "seq_len=40 heads=1 d_key=128 gate=head dtype=bf16",
      "seq_len=40 d_key=16 gate=none dtype=f16"}},
    {"decay_attention_step",
     {"batch=3 d_key=64", "batch=3 d_key=7 d_value=19 gate=channel",
      "batch=2 seq_len=9 d_key=300 gate=none dtype=bf16"}},
    {"delta_attention_forward",
     {"seq_len=300 heads=2 d_key=20 d_value=33",
      "seq_len=40 heads=2 value_heads=6 d_key=64 gate=channel",
      "seq_len=40 heads=1 d_key=128 gate=none dtype=bf16"}},
    {"delta_attention_gradient",
     {"seq_len=300 heads=2 d_key=20 d_value=33",
      "seq_len=300 heads=2 d_key=20 checkpoints=0",
      "seq_len=40 heads=2 value_heads=6 d_key=64 gate=channel",
      "seq_len=40 heads=1 d_key=128 gate=none dtype=bf16"}},
    {"delta_attention_step",
     {"batch=3 d_key=64", "batch=3 d_key=7 d_value=19 gate=channel",
      "batch=2 seq_len=9 d_key=300 gate=none dtype=bf16"}},
    {"dplr_attention_forward",
     {"seq_len=300 heads=2 d_key=20 d_value=33",
      "seq_len=40 heads=1 d_key=64 dtype=bf16"}},
    {"dplr_attention_gradient",
     {"seq_len=300 heads=2 d_key=20 d_value=33",
      "seq_len=40 heads=1 d_key=64 dtype=bf16"}},
    {"dplr_attention_step", {"batch=3 d_key=64", "batch=3 d_key=7 d_value=19"}},
    {"dropout_scales", {"rows=300 width=37"}},
    {"layer_norm", {"rows=70 width=37"}},
    {"decay_gate_forward",
     {"rows=700 width=37", "rows=700 width=300 dtype=bf16",
      "rows=700 width=37 form=bounded dtype=f16",
      "rows=700 width=37 form=log_sigmoid",
      "rows=700 width=37 form=exponential", "rows=700 width=37 form=sigmoid"}},
    {"decay_gate_gradient",
     {"rows=700 width=37", "rows=700 width=300 dtype=bf16",
      "rows=700 width=37 form=bounded dtype=f16",
      "rows=700 width=37 form=log_sigmoid",
      "rows=700 width=37 form=exponential", "rows=700 width=37 form=sigmoid"}},
    {"head_scale_forward",
     {"rows=700 heads=3 width=37", "rows=700 heads=3 width=37 base=0",
      "rows=70 heads=3 width=64 dtype=bf16"}},
    {"head_scale_gradient",
     {"rows=700 heads=3 width=37", "rows=70 heads=3 width=64 dtype=bf16"}},
    {"token_shift_forward",
     {"seq_len=700 width=37", "seq_len=700 width=37 weight=0",
      "seq_len=70 width=64 dtype=bf16"}},
    {"token_shift_gradient",
     {"seq_len=700 width=37", "seq_len=700 width=37 weight=0",
      "seq_len=70 width=64 dtype=bf16"}},
    {"row_argmax", {"count=5000", "count=37"}},
    {"unit_norm_forward",
     {"rows=700 heads=3 width=37", "rows=70 heads=3 width=64 dtype=bf16"}},
    {"unit_norm_gradient",
     {"rows=700 heads=3 width=37", "rows=70 heads=3 width=64 dtype=bf16"}},
    {"silu", {"rows=70 width=37"}},
    {"sigmoid", {"rows=70 width=37"}},
    {"softplus", {"rows=70 width=37"}},
    {"square_relu", {"rows=70 width=37"}},
    {"tanh", {"rows=70 width=37"}},
    {"selective_scan_forward",
     {"seq_len=70 channels=137", "seq_len=70 channels=37 states=5 dtype=bf16"}},
    {"selective_scan_gradient",
     {"seq_len=70 channels=137", "seq_len=70 channels=37 states=5 dtype=bf16"}},
    {"mlstm_gates_forward",
     {"batch=2 seq_len=70 heads=5", "batch=2 seq_len=70 heads=40 dtype=bf16"}},
    {"mlstm_gates_gradient",
     {"batch=2 seq_len=70 heads=5", "batch=2 seq_len=70 heads=40 dtype=bf16"}},
    {"mlstm_read_forward", {"rows=1000 width=37"}},
    {"mlstm_read_gradient", {"rows=1000 width=37"}},
    {"rg_lru_forward", {"rows=1000 width=37", "rows=1000 width=37 dtype=f16"}},
    {"rg_lru_gradient", {"rows=1000 width=37", "rows=1000 width=37 dtype=f16"}},
    {"elementwise_recurrence_forward",
     {"seq_len=70 channels=137", "seq_len=70 channels=37 dtype=bf16"}},
    {"elementwise_recurrence_gradient",
     {"seq_len=70 channels=137", "seq_len=70 channels=37 dtype=bf16"}},
    {"entry_forms_forward",
     {"rows=1000 width=37", "rows=1000 width=37 form=mixed_gate dtype=bf16",
      "rows=1000 width=37 form=gelu", "rows=1000 width=37 form=elu1 dtype=f16",
      "rows=1000 width=37 form=square_relu dtype=bf16",
      "rows=1000 width=37 form=power_gate dtype=bf16"}},
    {"entry_forms_gradient",
     {"rows=1000 width=37", "rows=1000 width=37 form=mixed_gate dtype=bf16",
      "rows=1000 width=37 form=gelu", "rows=1000 width=37 form=elu1 dtype=f16",
      "rows=1000 width=37 form=power_gate dtype=bf16"}},
    {"gate_correction_forward",
     {"seq_len=300 heads=3 width=37",
      "seq_len=70 heads=2 width=64 dtype=bf16"}},
    {"gate_correction_gradient",
     {"seq_len=300 heads=3 width=37",
      "seq_len=70 heads=2 width=64 dtype=bf16"}},
    {"gated_norm_forward",
     {"seq_len=300 groups=3 width=37", "seq_len=70 groups=2 width=64 first=1",
      "seq_len=70 groups=2 width=37 first=1 centred=1 dtype=bf16"}},
    {"gated_norm_gradient",
     {"seq_len=300 groups=3 width=37", "seq_len=70 groups=2 width=64 first=1",
      "seq_len=70 groups=2 width=37 first=1 centred=1 dtype=bf16"}},
    {"gemm",
     {"rows=70 columns=200 depth=300", "rows=70 columns=200 depth=300 form=nn",
      "rows=70 columns=200 depth=300 form=tn"}},
    {"layer_heads", {"rows=150 width=37", "rows=150 width=37 gradient=1"}},
    {"layer_rest",
     {"rows=150 width=37 hidden=70", "rows=150 width=37 hidden=70 gradient=1"}},
    {"linear_attention_forward",
     {"seq_len=150 d_key=64", "seq_len=150 d_key=32", "seq_len=150 d_key=128",
      "seq_len=150 d_key=64 causal=0", "seq_len=150 d_key=7 d_value=19",
      "seq_len=150 d_key=64 dtype=bf16", "seq_len=150 d_key=64 dtype=f16",
      "seq_len=150 heads=1 d_key=128", "seq_len=150 chunk=16",
      "seq_len=150 chunk=64", "seq_len=150 layout=heads_first"}},
    {"linear_attention_gradient",
     {"seq_len=150 d_key=64", "seq_len=150 d_key=32", "seq_len=150 d_key=128",
      "seq_len=150 d_key=64 causal=0", "seq_len=150 d_key=7 d_value=19",
      "seq_len=150 d_key=64 dtype=bf16", "seq_len=150 d_key=64 dtype=f16",
      "seq_len=150 heads=1 d_key=128", "seq_len=150 chunk=16",
      "seq_len=150 chunk=64", "seq_len=150 layout=heads_first"}},
    {"linear_attention_step",
     {"batch=3 d_key=64", "batch=3 d_key=7 d_value=19",
      "batch=3 d_key=64 dtype=bf16"}},
    {"linear_attention_prefill",
     {"seq_len=9 d_key=64", "seq_len=9 d_key=7 d_value=19 dtype=f16"}},
    {"logistic_mixture_loss", {"rows=70 mixtures=10", "rows=3 mixtures=1"}},
    {"logistic_mixture_gradient", {"rows=70 mixtures=10"}},
    {"logistic_mixture_sample", {"rows=70 mixtures=10"}},
    {"matmul",
     {"rows=1 inputs=300 outputs=200", "rows=70 inputs=300 outputs=200",
      "rows=1 inputs=300 outputs=200 dtype=bf16",
      "rows=70 inputs=300 outputs=200 dtype=bf16",
      "rows=1 inputs=300 outputs=200 finish=swiglu",
      "rows=70 inputs=300 outputs=200 finish=swiglu"}},
    {"residual_norm_forward",
     {"rows=300 width=37", "rows=300 width=37 dropout=0",
      "rows=300 width=37 kind=rms"}},
    {"residual_norm_gradient",
     {"rows=300 width=37", "rows=300 width=37 dropout=0",
      "rows=300 width=37 kind=rms"}},
    {"rms_norm", {"rows=70 width=37"}},
    {"layer_step", {"rows=1 width=20 hidden=33", "rows=5 width=20 hidden=33"}},
    {"row_mixes_forward",
     {"rows=1000 width=37 count=6", "rows=70 width=300 count=2 dtype=bf16"}},
    {"row_mixes_gradient",
     {"rows=1000 width=37 count=6", "rows=70 width=300 count=2 dtype=bf16"}},
    {"row_product", {"rows=3 inputs=131 outputs=66"}},
    {"moe_forward", {"tokens=70 experts=5 d_model=33 d_ff=70"}},
    {"moe_gradient", {"tokens=70 experts=5 d_model=33 d_ff=70"}},
    {"poly2", {"rows=70 width=13", "rows=3 width=1"}},
    {"rotary", {"rows=70 heads=3 d_key=10"}},
    {"rotary_rows",
     {"seq_len=300 heads=3 d_key=38",
      "seq_len=300 heads=3 d_key=38 interleaved=1 dtype=bf16"}},
    {"short_convolution_forward",
     {"seq_len=70 channels=137", "seq_len=70 channels=37 width=3 dtype=bf16"}},
    {"short_convolution_gradient",
     {"seq_len=70 channels=137", "seq_len=70 channels=37 width=3 dtype=bf16"}},
    {"softmax_attention_forward",
     {"seq_len=150 heads=2 d_key=10 d_value=7 dropout=10 bias=1",
      "seq_len=150 d_key=64 causal=0", "seq_len=150 local_context=9"}},
    {"softmax_attention_gradient",
     {"seq_len=150 heads=2 d_key=10 d_value=7 dropout=10 bias=1",
      "seq_len=150 d_key=64 causal=0", "seq_len=150 local_context=9"}},
    {"softmax_attention_step", {"seq_len=99 heads=3 d_key=10 d_value=7"}},
    {"swiglu_forward", {"rows=300 width=37", "rows=300 width=37 dropout=0"}},
    {"swiglu_gradient", {"rows=300 width=37", "rows=300 width=37 dropout=0"}},
};

// Calls f once, then counts the most that one of three calls more takes.
template <typename F>
int64_t TakenBy(const F& f) {
  f();
  int64_t most = 0;
  for (int i = 0; i < 3; ++i) {
    const int64_t before = Allocations();
    f();
    most = std::max(most, Allocations() - before);
  }
  return most;
}

// A pool of two whose second thread has run: what a thread allocates when it
// begins belongs to no kernel. A minute guards against a pool that has none.
ThreadPool& RunningPool() {
  static ThreadPool pool(2);
  [[maybe_unused]] static const bool running = [] {
    std::atomic<bool> second{false};
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!second && std::chrono::steady_clock::now() < end) {
      pool.ParallelFor(2, [&](int64_t, int worker) {
        if (worker == 1) second = true;
        std::this_thread::yield();
      });
    }
    return second.load();
  }();
  return pool;
}

// Calls f(executor) with one thread and with two.
template <typename F>
void WithExecutors(const F& f) {
  SerialExecutor serial;
  f(serial);
  f(RunningPool());
}

// Volatile: the compiler may leave out an allocation that is never read.
void* volatile seen;

TEST(AllocationCount, CountsEveryWayToTakeMemory) {
  const auto expect_one = [](const char* what, auto take, auto give) {
    const int64_t before = Allocations();
    seen = take();
    give(seen);
    EXPECT_EQ(1, Allocations() - before) << what;
  };
  const auto release = [](void* p) { std::free(p); };
  expect_one(
      "malloc", [] { return std::malloc(100); }, release);
  expect_one(
      "calloc", [] { return std::calloc(10, 10); }, release);
  expect_one(
      "realloc", [] { return std::realloc(nullptr, 100); }, release);
#ifndef __SANITIZE_THREAD__  // whose hooks do not see this one
  expect_one(
      "aligned", [] { return std::aligned_alloc(64, 128); }, release);
#endif
  const auto drop = [](void* p) { ::operator delete(p); };
  expect_one(
      "new", [] { return ::operator new(100); }, drop);
  expect_one(
      "new, nothrow", [] { return ::operator new(100, std::nothrow); }, drop);
  constexpr std::align_val_t kLine{64};
  expect_one(
      "new, aligned", [=] { return ::operator new(128, kLine); },
      [=](void* p) { ::operator delete(p, kLine); });
  const int64_t before = Allocations();
  EXPECT_EQ(0, Allocations() - before);
}

// They decide, once a call and before any product, which rows of whole
// sequences meet: hashes, centres and sorted places are in vectors of their
// own.
const std::set<std::string> kWithOwnMemory = {"cluster_queries", "hash_buckets",
                                              "reformer_bias"};

TEST(KernelAllocation, EveryCaseOnOneThreadAndTwo) {
  for (const bench::Entry& entry : bench::Entries()) {
    const std::string name = entry.name;
    if (name.rfind("limit_", 0) == 0) continue;  // the machine's, no kernel
    if (kWithOwnMemory.count(name)) continue;
    ASSERT_TRUE(kCases.count(name)) << name << " has no sizes in kCases";
    for (const std::string& params : kCases.at(name)) {
      for (const std::string& target : SimdTargets()) {
        ForceSimdTarget(target);
        WithExecutors([&](Executor& executor) {
          const auto kernel = bench::MakeCase(name, params, executor.width());
          EXPECT_EQ(TakenBy([&] { kernel->Run(executor); }), 0)
              << name << " " << params << " " << target << " on "
              << executor.width();
        });
      }
      ResetSimdTarget();
    }
  }
}

// A kernel without a benchmark case would be left out without a word.
TEST(KernelAllocation, EveryFolderOfKernelsHasCases) {
  std::set<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(TARN_KERNELS)) {
    if (entry.is_directory()) folders.insert(entry.path().filename().string());
  }
  ASSERT_FALSE(folders.empty());
  folders.erase("activation");   // relu, gelu, elu1, add
  folders.erase("cuda");         // of devices; takes its memory from the caller
  folders.erase("gate_rows");    // silu, sigmoid, softplus, tanh
  folders.erase("memory_read");  // the tests below
  folders.erase("positions");
  folders.erase("recurrence");  // what decay, delta and dplr share
  folders.erase("hash");        // kWithOwnMemory
  folders.erase("reformer_window");
  for (const std::string& folder : folders) {
    bool found = false;
    for (const auto& [name, params] : kCases) {
      found = found || name.rfind(folder, 0) == 0;
    }
    EXPECT_TRUE(found) << folder;
  }
}

TEST(KernelAllocation, ReadingMemory) {
  const std::vector<uint64_t> words(100000, 3);
  const auto* aligned = reinterpret_cast<const uint64_t*>(
      (reinterpret_cast<uintptr_t>(words.data()) + 63) / 64 * 64);
  WithExecutors([&](Executor& executor) {
    EXPECT_EQ(0, TakenBy([&] { SumWords(aligned, 99000, executor); }));
  });
}

// Rows from tables taken once, as the runtime asks for them; a row without one
// makes it.
TEST(KernelAllocation, PositionRowsFromTables) {
  std::vector<double> periods(19), frequencies(19);
  std::vector<float> row(37), cos(19), sin(19);
  EXPECT_EQ(0, TakenBy([&] {
              SinusoidalPeriods(37, periods.data());
              SinusoidalRow(5, 37, periods.data(), row.data());
              RotaryFrequencies(38, 10000, frequencies.data());
              RotaryRow(5, 38, frequencies.data(), cos.data(), sin.data());
            }));
}

// The call of a problem, its results and its gradients, with memory of their
// own for every optional result.
class Buffers {
 public:
  Buffers(const Call& call, const LinearAttentionOptions& options,
          const Problem& p, DType dtype, int width)
      : options_(options),
        in_(call.in),
        out_(call.batch, call.seq_len_q, p.value_heads, p.d_value, dtype, true),
        grad_out_(out_),
        grad_queries_(call.queries),
        grad_keys_(call.keys),
        grad_values_(call.values),
        denominators_(call.batch * call.seq_len_q * p.value_heads),
        S_(call.count * p.value_heads * p.d_key * p.d_value),
        z_(call.count * p.value_heads * p.d_key),
        workspace_(MakeWorkspace(
            LinearAttentionBackwardWorkspaceBytes(options, call.in, width))) {
    results_ = {out_.view(), S_.data(), z_.data(), denominators_.data()};
    gradients_.out = out_.view();
    gradients_.denominators = denominators_.data();
    gradients_.grad_out = grad_out_.view();
    gradients_.grad_final_S = in_.initial_S;
    gradients_.grad_final_z = in_.initial_z;
    gradients_.grad_queries = grad_queries_.view();
    gradients_.grad_keys = grad_keys_.view();
    gradients_.grad_values = grad_values_.view();
    gradients_.grad_initial_S = S_.data();
    gradients_.grad_initial_z = z_.data();
  }
  void Forward(Executor& executor) {
    LinearAttentionForward(options_, in_, results_, executor, workspace_.get());
  }
  void Backward(Executor& executor) {
    LinearAttentionBackward(options_, in_, gradients_, executor,
                            workspace_.get());
  }

 private:
  LinearAttentionOptions options_;
  LinearAttentionInputs in_;
  GuardedTensor out_, grad_out_, grad_queries_, grad_keys_, grad_values_;
  std::vector<float> denominators_, S_, z_;
  Workspace workspace_;
  LinearAttentionOutputs results_;
  LinearAttentionGradients gradients_;
};

// The gradients below are copies of the inputs: written elsewhere.
TEST(GuardedTensor, ACopyHasBytesOfItsOwn) {
  GuardedTensor first(1, 2, 1, 3, DType::kF32, true);
  first.Set(0, 1, 0, 2, 5);
  GuardedTensor copy(first);
  EXPECT_EQ(copy.Get(0, 1, 0, 2), 5);
  copy.Set(0, 1, 0, 2, 7);
  EXPECT_EQ(copy.Get(0, 1, 0, 2), 7);
  EXPECT_EQ(first.Get(0, 1, 0, 2), 5);
  EXPECT_TRUE(first.GuardsIntact() && copy.GuardsIntact());
}

// Masks, packing, states in and out, grouped heads, strided rows, every feature
// map and denominator of the kernels.
TEST(KernelAllocation, EveryOptionOfLinearAttention) {
  const Shape shape = {
      .T = 70, .heads = 2, .value_heads = 4, .d_key = 20, .d_value = 33};
  for (const bool packed : {false, true}) {
    for (const FeatureMap map : kElementwiseMaps) {
      for (const Denominator denominator :
           {Denominator::kExact, Denominator::kCompat, Denominator::kNone}) {
        for (const bool causal : {true, false}) {
          LinearAttentionOptions options;
          options.causal = causal;
          options.feature_map = map;
          options.denominator = denominator;
          std::vector<Problem> problems;
          for (uint64_t seed = 1; seed < 4; ++seed) {
            problems.push_back(MakeProblem(shape, options, seed));
            problems.back().kept[5 * seed] = false;
          }
          const Call call(problems, DType::kF32, true, packed);
          WithExecutors([&](Executor& executor) {
            Buffers buffers(call, options, problems[0], DType::kF32,
                            executor.width());
            EXPECT_EQ(0, TakenBy([&] { buffers.Forward(executor); }))
                << packed << " " << Name(map) << " " << Name(denominator);
            EXPECT_EQ(0, TakenBy([&] { buffers.Backward(executor); }))
                << packed << " " << Name(map) << " " << Name(denominator);
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace tarn::testing
