// In place of core/executor.cc and core/threads/cpu_quota.cc where a process
// has one thread (the WebAssembly build): a pool of any width has one worker,
// the caller.
#include "core/executor.h"

#include "core/error.h"

namespace tarn {

struct ThreadPool::Impl {};

ThreadPool::ThreadPool(int threads) : width_(1), hook_(this, {}) {
  if (threads < 1) {
    throw ArgumentError("ThreadPool: threads", "at least 1", StrCat(threads));
  }
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::width() const { return width_; }

void ThreadPool::ParallelFor(int64_t tasks, TaskRef f) {
  SerialExecutor().ParallelFor(tasks, f);
}

int DefaultThreads() { return 1; }

}  // namespace tarn
