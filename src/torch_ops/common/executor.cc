#include "torch_ops/common/executor.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <atomic>
#include <exception>

namespace tarn::ops {
namespace {

// One region: a counter from which slots claim tasks, and the first exception.
struct Region {
  int64_t tasks;
  TaskRef f;
  std::atomic<int64_t> next{0};
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  std::exception_ptr error = nullptr;

  // The slot's number is the worker's, whichever threads torch uses.
  void RunSlot(int64_t slot) {
    try {
      for (int64_t task; (task = next.fetch_add(1)) < tasks;) {
        f(task, static_cast<int>(slot));
      }
    } catch (...) {
      next.store(tasks);  // the others stop at their next claim
      if (!failed.test_and_set()) error = std::current_exception();
    }
  }
};

}  // namespace

TorchExecutor::TorchExecutor()
    : width_(at::in_parallel_region() ? 1 : at::get_num_threads()) {}

TorchExecutor::TorchExecutor(int most) : TorchExecutor() {
  width_ = std::min(width_, most);
}

void TorchExecutor::ParallelFor(int64_t tasks, TaskRef f) {
  const int64_t slots = std::min<int64_t>(width_, tasks);
  if (slots <= 1 || at::in_parallel_region()) {
    for (int64_t task = 0; task < tasks; ++task) f(task, 0);
    return;
  }
  Region region{tasks, f};
  // Not at::parallel_for: that is inlined from a header, and serial in code
  // that is compiled without OpenMP. This one runs inside libtorch.
  const AOTITorchError status = torch_parallel_for(
      0, slots, /*grain_size=*/1,
      [](int64_t begin, int64_t end, void* context) {
        for (int64_t slot = begin; slot < end; ++slot) {
          static_cast<Region*>(context)->RunSlot(slot);
        }
      },
      &region);
  if (region.error) std::rethrow_exception(region.error);
  TORCH_CHECK(status == AOTI_TORCH_SUCCESS, "torch_parallel_for failed");
}

}  // namespace tarn::ops
