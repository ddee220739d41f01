#include "core/threads/stoppable.h"

#include "core/error.h"

namespace tarn {

StopScope::StopScope(StoppableExecutor& executor, const StopCheck& check)
    : executor_(executor) {
  executor.check_ = check ? &check : nullptr;
  executor.caller_ = std::this_thread::get_id();
  executor.next_ = StoppableExecutor::Clock::time_point{};
  executor.stopped_ = false;
}

StopScope::~StopScope() { executor_.check_ = nullptr; }

void StopScope::Check() const {
  if (executor_.check_ != nullptr && executor_.Asks()) {
    executor_.ThrowIfStopped();
  }
}

// Whether the call is to stop. Only the caller's thread asks.
bool StoppableExecutor::Asks() {
  if (stopped_.load(std::memory_order_relaxed)) return true;
  if (std::this_thread::get_id() != caller_) return false;
  const Clock::time_point now = Clock::now();
  if (now < next_) return false;
  next_ = now + interval_;
  if (!(*check_)()) return false;
  stopped_.store(true, std::memory_order_relaxed);
  return true;
}

void StoppableExecutor::ParallelFor(int64_t tasks, TaskRef f) {
  if (check_ == nullptr) {
    on_.ParallelFor(tasks, f);
    return;
  }
  if (!Asks()) {
    on_.ParallelFor(tasks, [&](int64_t task, int worker) {
      if (!Asks()) f(task, worker);
    });
  }
  ThrowIfStopped();
}

void StoppableExecutor::ThrowIfStopped() const {
  if (stopped_) throw Error(ErrorCode::kInterrupted, "interrupted");
}

}  // namespace tarn
