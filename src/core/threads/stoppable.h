// An executor whose regions can be stopped, so that a long call answers Ctrl-C.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "core/executor.h"

namespace tarn {

/// Asked on the thread that made the call; true stops it. Must not throw.
using StopCheck = std::function<bool()>;

/// Runs regions on another executor, which must outlive it. Inside a
/// StopScope it asks the scope's check between tasks; once that returned true,
/// tasks that have not begun are left out and ParallelFor throws Error of
/// kInterrupted. Outside of a scope it costs one comparison a region. Scopes
/// and regions of one object take turns.
class StoppableExecutor final : public Executor {
 public:
  using Clock = std::chrono::steady_clock;
  /// At most one check per `interval`.
  explicit StoppableExecutor(
      Executor& on, Clock::duration interval = std::chrono::milliseconds(20))
      : on_(on), interval_(interval) {}

  int width() const override { return on_.width(); }
  void ParallelFor(int64_t tasks, TaskRef f) override;

 private:
  friend class StopScope;
  bool Asks();
  void ThrowIfStopped() const;

  Executor& on_;
  const Clock::duration interval_;
  const StopCheck* check_ = nullptr;  // of the scope
  std::thread::id caller_;            // who made it
  Clock::time_point next_{};          // time of the next check
  std::atomic<bool> stopped_{false};
};

/// Lets `check` stop the executor's regions while the scope lives; an empty
/// check never does.
class StopScope {
 public:
  StopScope(StoppableExecutor& executor, const StopCheck& check);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

  /// Asks as a region does: for work that may be too small to have one.
  void Check() const;

 private:
  StoppableExecutor& executor_;
};

}  // namespace tarn
