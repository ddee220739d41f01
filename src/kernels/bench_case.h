// The parts of a kernel's benchmark. Each <op>_bench.cc registers its cases;
// the benchmark library (bench/native) runs them by name. Not a part of the
// product.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/executor.h"
#include "core/tensor_view.h"
#include "kernels/aligned_buffer.h"

namespace tarn::bench {

/// "seq_len=4096 dtype=bf16": the parameters of one case.
class Params {
 public:
  /// Throws ArgumentError for text that is not a list of name=value.
  explicit Params(std::string_view text);
  /// The value given, or `fallback`. Throws ArgumentError when the value is not
  /// an integer of at least `least`.
  int64_t Int(const std::string& name, int64_t fallback, int64_t least = 1);
  std::string Text(const std::string& name, const std::string& fallback);
  /// f32 (default), bf16 or f16.
  DType Type(const std::string& name);
  /// Throws ArgumentError naming a parameter that no call above asked for.
  void CheckAllUsed() const;

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> used_;
};

/// What one run does. Useful FLOP are what the algorithm needs, whatever is
/// executed; bytes are the sizes of the inputs and outputs, each counted once.
struct Work {
  double useful_flop = 0, executed_flop = 0, bytes = 0;
};

/// One shape of one kernel: buffers are allocated, touched and filled by the
/// constructor, so that Run() is the kernel alone.
class Case {
 public:
  virtual ~Case() = default;
  virtual void Run(Executor& executor) = 0;
  const Work& work() const { return work_; }

 protected:
  // Work of a pass over `entries`: `operations` on each, in each of `moved`
  // tensors of the dtype.
  void CountPass(int64_t entries, double operations, double moved,
                 DType dtype) {
    const double count = static_cast<double>(entries);
    work_.useful_flop = work_.executed_flop = count * operations;
    work_.bytes = count * moved * static_cast<double>(DTypeBytes(dtype));
  }

  Work work_;
};

/// Makes a case for an executor of `threads` workers.
using Factory = std::unique_ptr<Case> (*)(Params& params, int threads);
/// The factory of a case whose constructor takes the same.
template <typename T>
std::unique_ptr<Case> NewCase(Params& params, int threads) {
  return std::make_unique<T>(params, threads);
}

struct Entry {
  const char* name;  // "linear_attention_forward"
  Factory make;
};
/// Each <op>_bench.cc defines `void Register<Op>(Registry& registry) {`, on one
/// line: bench/CMakeLists.txt finds it there and has it called.
using Registry = std::vector<Entry>;

/// A buffer of `count` elements of a dtype, filled with fixed values in
/// [-1, 1) without a short period. 64-byte aligned, on pages of the usual size,
/// as the tensors of torch and its users are: huge pages would flatter kernels.
class Values {
 public:
  Values() = default;
  Values(int64_t count, DType dtype, uint64_t seed = 1);
  void* data() { return bytes_.get(); }
  float* f32() { return static_cast<float*>(bytes_.get()); }

 private:
  std::unique_ptr<void, void (*)(void*)> bytes_{nullptr, std::free};
};

/// Calls f(begin, end, worker) for ranges that cover [0, rows), about four per
/// worker, as the runtime hands rows to the kernels that take one row.
template <typename F>
void ForRows(Executor& executor, int64_t rows, F f) {
  const int64_t tasks = executor.width() == 1 ? 1 : executor.width() * 4;
  executor.ParallelFor(tasks, [&](int64_t task, int worker) {
    f(rows * task / tasks, rows * (task + 1) / tasks, worker);
  });
}

}  // namespace tarn::bench
