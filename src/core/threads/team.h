// Phases that follow each other within microseconds: the products of one
// decoding step. One region of the executor per phase would cost a hand-over at
// both ends and redistribute the tasks; a team enters one region for all
// phases, and a worker keeps the share that is next to what it has just read.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>

#include "core/executor.h"

namespace tarn {

/// Runs phases over the workers of an executor, which must outlive it. One
/// Run() at a time.
class Team {
 public:
  explicit Team(Executor& executor);

  /// Shares in a phase: the executor's width.
  int width() const { return executor_.width(); }

  /// Calls work(phase, share, worker) once for every phase in [0, phases) and
  /// share in [0, width()); all shares of a phase are done before one of the
  /// next begins. Share s belongs to worker s; if that worker does not come in
  /// time, another takes it. After its share of a phase a worker calls
  /// idle(phase, share) while no other worker waits for it: the place to
  /// prefetch what the next phase reads. An exception from `work` is rethrown
  /// here; what has not begun by then is left out. Allocates nothing.
  template <typename Work, typename Idle>
  void Run(int64_t phases, const Work& work, const Idle& idle) {
    const int64_t width = executor_.width();
    RunAll(
        phases,
        [&](int64_t task, int worker) {
          work(task / width, static_cast<int>(task % width), worker);
        },
        [&](int64_t task, int) {
          idle(task / width, static_cast<int>(task % width));
        });
  }

 private:
  // One share's progress, on a separate cache line: normally only its worker
  // writes there, and the others read it once per phase.
  struct alignas(64) Lane {
    std::atomic<int64_t> claimed{0};  // phases begun by any worker
    std::atomic<int64_t> done{0};     // and finished
    std::atomic<bool> absent{false};  // another worker ran the last one
  };
  // Task `phase * width + share`.
  struct Phases {
    int64_t count;
    TaskRef work, idle;
  };

  void RunAll(int64_t phases, TaskRef work, TaskRef idle);
  void Participate(const Phases& phases, int worker);
  bool Claim(int share, int64_t phase);
  void RunShare(const Phases& phases, int64_t phase, int share, int worker);
  void WaitFor(const Phases& phases, int64_t phase, int share, int worker);

  Executor& executor_;
  std::unique_ptr<Lane[]> lanes_;  // [width]
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // written by the first to set `failed_`
};

}  // namespace tarn
