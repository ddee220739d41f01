// Where kernels run: a width and a parallel loop. Kernels start no thread; the
// runtime hands them its ThreadPool, a torch operator hands them torch's pool.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/fork.h"

namespace tarn {

/// A non-owning reference to a callable f(int64_t task, int worker): cheaper
/// than std::function, never allocates, must not outlive the callable.
class TaskRef {
 public:
  TaskRef() = default;  // refers to nothing yet; must not be called
  template <typename F, typename = std::enable_if_t<
                            !std::is_same_v<std::decay_t<F>, TaskRef>>>
  TaskRef(F&& f)  // NOLINT: implicit by design, calls read as plain lambdas
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, int64_t task, int worker) {
          (*static_cast<std::remove_reference_t<F>*>(object))(task, worker);
        }) {}
  void operator()(int64_t task, int worker) const {
    call_(object_, task, worker);
  }

 private:
  void* object_ = nullptr;
  void (*call_)(void*, int64_t, int) = nullptr;
};

class Executor {
 public:
  virtual ~Executor() = default;
  /// Number of workers; `worker` below is in [0, width()).
  virtual int width() const = 0;
  /// Calls f(task, worker) once for every task in [0, tasks), in any order,
  /// and returns when all are done. Two calls that run at the same time have
  /// different `worker`. An exception from a task is rethrown here, after the
  /// running tasks have ended.
  virtual void ParallelFor(int64_t tasks, TaskRef f) = 0;
};

/// Runs everything on the calling thread, in order. Stateless, thread-safe.
class SerialExecutor final : public Executor {
 public:
  int width() const override { return 1; }
  void ParallelFor(int64_t tasks, TaskRef f) override {
    for (int64_t task = 0; task < tasks; ++task) f(task, 0);
  }
};

/// tarn's own pool. The caller works too; tasks are claimed from a shared
/// counter, so a late worker delays one task; a waiting worker spins at most
/// 50 us and then sleeps. Where another process holds a core, so that a worker
/// comes late with its last task, the pool leaves workers out for a while: 10
/// ms, longer each time, a second at most. One ParallelFor at a time: calls
/// from several threads are taken in turn; a call from inside a task runs
/// inline. In the child of a fork the pool starts its own threads with the
/// first call (ArgumentError where the system refuses them); a task that forks
/// must not return in the child.
class ThreadPool final : public Executor {
 public:
  /// threads >= 1, the caller included; throws ArgumentError otherwise.
  explicit ThreadPool(int threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int width() const override;
  void ParallelFor(int64_t tasks, TaskRef f) override;

 private:
  struct Impl;
  void Restart();

  const int width_;
  std::unique_ptr<Impl> impl_;
  std::atomic<bool> lost_{false};  // a fork left impl_ without its threads
  ForkFreedMutex restart_;
  ForkHook hook_;  // last: it reaches all of the above
};

/// Threads to use by default: affinity mask and cgroup quota, >= 1.
int DefaultThreads();

}  // namespace tarn
