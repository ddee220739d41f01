#include "pytorch/ops_executor.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

namespace tarn::ops {

TorchExecutor::TorchExecutor()
    : width_(at::in_parallel_region() ? 1 : at::get_num_threads()) {}

void TorchExecutor::ParallelFor(int64_t tasks, TaskRef f) {
  const int64_t workers = std::min<int64_t>(width_, tasks);
  if (workers <= 1 || at::in_parallel_region()) {
    for (int64_t task = 0; task < tasks; ++task) f(task, 0);
    return;
  }
  // One slot a worker; a slot claims tasks from the counter until none is left,
  // so a late thread delays one task. The slot's number is the worker, which
  // holds whichever threads torch uses.
  std::atomic<int64_t> next{0};
  at::parallel_for(0, workers, 1, [&](int64_t begin, int64_t) {
    try {
      for (int64_t task; (task = next.fetch_add(1)) < tasks;) {
        f(task, static_cast<int>(begin));
      }
    } catch (...) {
      next.store(tasks);  // the others stop at their next claim
      throw;              // torch rethrows it in the caller
    }
  });
}

}  // namespace tarn::ops
