#include "core/threads/team.h"

#include <thread>
#include <utility>

#include "core/threads/cpu_relax.h"

namespace tarn {
namespace {

// Polls, some 40 ns each, before an unclaimed share is taken from its worker:
// longer than a worker that runs takes to see that a phase is over.
constexpr int kStealAfter = 64;
// Polls before a waiting worker offers its core to others.
constexpr int kYieldAfter = 2048;

}  // namespace

Team::Team(Executor& executor)
    : executor_(executor),
      lanes_(std::make_unique<Lane[]>(static_cast<size_t>(executor.width()))) {}

void Team::RunAll(int64_t count, TaskRef work, TaskRef idle) {
  const int width = executor_.width();
  if (width == 1) {
    for (int64_t phase = 0; phase < count; ++phase) {
      work(phase, 0);
      idle(phase, 0);
    }
    return;
  }
  for (int share = 0; share < width; ++share) {
    lanes_[share].claimed.store(0, std::memory_order_relaxed);
    lanes_[share].done.store(0, std::memory_order_relaxed);
  }
  failed_.store(false, std::memory_order_relaxed);
  const Phases phases{count, work, idle};
  // One task per worker. It does no harm when one worker gets several: the
  // first runs every phase, the others find them done.
  executor_.ParallelFor(
      width, [&](int64_t, int worker) { Participate(phases, worker); });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Team::Participate(const Phases& phases, int worker) {
  for (int64_t phase = 0; phase < phases.count; ++phase) {
    if (Claim(worker, phase)) {
      std::atomic<bool>& absent = lanes_[worker].absent;
      if (absent.load(std::memory_order_relaxed)) {
        absent.store(false, std::memory_order_relaxed);
      }
      RunShare(phases, phase, worker, worker);
      phases.idle(phase * executor_.width() + worker, worker);
    }
    for (int share = 0; share < executor_.width(); ++share) {
      WaitFor(phases, phase, share, worker);
    }
  }
}

bool Team::Claim(int share, int64_t phase) {
  return lanes_[share].claimed.compare_exchange_strong(phase, phase + 1);
}

void Team::RunShare(const Phases& phases, int64_t phase, int share,
                    int worker) {
  if (!failed_.load(std::memory_order_relaxed)) {
    try {
      phases.work(phase * executor_.width() + share, worker);
    } catch (...) {
      // The region's end orders this before the caller reads error_.
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
  }
  lanes_[share].done.store(phase + 1, std::memory_order_release);
}

void Team::WaitFor(const Phases& phases, int64_t phase, int share, int worker) {
  Lane& lane = lanes_[share];
  for (int64_t polls = 0; lane.done.load(std::memory_order_acquire) <= phase;
       ++polls) {
    const bool late =
        polls >= kStealAfter || lane.absent.load(std::memory_order_relaxed);
    if (late && lane.claimed.load(std::memory_order_relaxed) <= phase &&
        Claim(share, phase)) {
      lane.absent.store(true, std::memory_order_relaxed);
      RunShare(phases, phase, share, worker);
      return;
    }
    if (polls < kYieldAfter) {
      CpuRelax();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace tarn
