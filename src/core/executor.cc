#include "core/executor.h"

#if defined(__linux__)
#include <pthread.h>
#include <time.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/threads/cpu_relax.h"

namespace tarn {
namespace pool {

// The tasks that a thread is running, innermost first. They tell a call from
// within a task (which runs inline) from a call that waits for its turn.
struct Frame {
  const void* pool;
  int worker;
  const Frame* parent;
};

}  // namespace pool
namespace {

// More threads than any machine this runs on; keeps a typing slip harmless.
constexpr int kMaxThreads = 1024;

// Long enough to bridge the gap between two regions of a decode step (about
// 12 us), short enough that an idle pool leaves the processor to others.
constexpr std::chrono::microseconds kSpin{50};

using Clock = std::chrono::steady_clock;

// A longer wait for the last worker is examined: a busy machine delays a thread
// by tens of microseconds, a core that is in use by milliseconds.
constexpr std::chrono::microseconds kLate{200};
// How long workers are left out after one was late.
constexpr std::chrono::milliseconds kFirstRest{10};
constexpr Clock::duration kLongestRest = std::chrono::seconds(1);

// The claim word holds the region's number above the count of blocks that are
// left: 2^24 blocks a region; 2^40 regions pass before a number comes back.
constexpr int kBlockBits = 24;
constexpr uint64_t kBlockMask = (uint64_t{1} << kBlockBits) - 1;

using pool::Frame;
thread_local const Frame* current_frame = nullptr;

class FrameScope {
 public:
  explicit FrameScope(const Frame* frame) : saved_(current_frame) {
    current_frame = frame;
  }
  ~FrameScope() { current_frame = saved_; }
  FrameScope(const FrameScope&) = delete;
  FrameScope& operator=(const FrameScope&) = delete;

 private:
  const Frame* saved_;
};

// Polls for at most kSpin; true once the condition holds.
template <typename Condition>
bool SpinUntil(Condition condition) {
  constexpr int kPollsPerClockRead = 16;
  const auto deadline = Clock::now() + kSpin;
  do {
    for (int poll = 0; poll < kPollsPerClockRead; ++poll) {
      if (condition()) return true;
      CpuRelax();
    }
  } while (Clock::now() < deadline);
  return false;
}

}  // namespace

// One region at a time. `claim` is the only word on which threads meet: a
// successful compare-and-swap takes blocks of the region that was read, so
// a thread that wakes late, even regions later, can take nothing stale. Blocks
// are claimed before the region's fields are read: the region cannot end while
// a claimed block is unfinished, so the fields need no lock.
struct ThreadPool::Impl {
  explicit Impl(int width) : width(width), active(width) {}

  void Start();
  void Stop();
  void WorkerMain(int worker);
  void RunRegion(int64_t task_count, TaskRef f);
  void RunInline(int64_t task_count, TaskRef f, int worker);
  void RunBlocks(int worker);
  void Publish(int64_t task_count, TaskRef f);
  void WaitUntilDone();
  std::chrono::nanoseconds WorkersTime();
  void EndRest();
  void NoteLate(Clock::time_point now);
  uint64_t Claim(uint64_t& left);
  void Fail(std::exception_ptr exception);
  void Finish(uint64_t count);
  bool HasWork(int worker) const {
    return (claim.load() & kBlockMask) != 0 && worker < active.load();
  }

  const int width;
  std::vector<std::thread> threads;  // width - 1: the caller is worker 0
  std::mutex turn;                   // held by the thread whose region runs

  // The region, written by its caller while no block is claimable, on one cache
  // line with the claim: the line that a waiting worker sees change holds all
  // it needs.
  alignas(64) std::atomic<uint64_t> claim{0};  // region number, blocks left
  TaskRef body;
  int64_t tasks = 0;
  int64_t tasks_per_block = 1;
  uint64_t blocks = 0;
  const Frame* caller = nullptr;
  alignas(64) std::atomic<uint64_t> pending{0};  // blocks not yet finished
  std::exception_ptr error;  // first one; guarded by `mutex` until the end

  // Late workers. `active` workers take part, the others sleep on; written by
  // the caller of a region before it begins.
  alignas(64) std::atomic<int> active{1};
  bool resting = false;          // some are left out until `rest_end`
  Clock::time_point rest_end{};  // of the present or the last rest
  Clock::duration rest = kFirstRest;

  // Sleeping. Each side raises its flag, then checks what the other writes (all
  // sequentially consistent), so no wake-up is lost.
  alignas(64) std::mutex mutex;
  std::condition_variable work_ready, region_done;
  std::atomic<int> sleepers{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stopping{false};
};

void ThreadPool::Impl::Start() {
  threads.reserve(width - 1);
  try {
    for (int worker = 1; worker < width; ++worker) {
      threads.emplace_back([this, worker] { WorkerMain(worker); });
    }
  } catch (const std::system_error& e) {
    const size_t started = threads.size() + 1;
    Stop();
    throw ArgumentError(
        "ThreadPool: threads",
        StrCat("at most ", started, ", all the system lets this process have"),
        StrCat(width, " (", e.what(), ")"));
  }
}

void ThreadPool::Impl::Stop() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  work_ready.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void ThreadPool::Impl::WorkerMain(int worker) {
  for (;;) {
    if (HasWork(worker)) RunBlocks(worker);
    if (stopping) return;
    const auto wanted = [&] { return HasWork(worker) || stopping; };
    if (SpinUntil(wanted)) continue;
    std::unique_lock lock(mutex);
    ++sleepers;
    work_ready.wait(lock, wanted);
    --sleepers;
  }
}

// Takes a share of the blocks that are left, down to single ones at the end:
// claims are few, for each moves a cache line, and workers end together.
// Returns how many blocks; `left` is the number before.
uint64_t ThreadPool::Impl::Claim(uint64_t& left) {
  uint64_t word = claim.load();
  while ((left = word & kBlockMask) != 0) {
    const uint64_t share =
        std::max<uint64_t>(left / (static_cast<uint64_t>(width) + 1), 1);
    if (claim.compare_exchange_weak(word, word - share)) return share;
  }
  return 0;
}

void ThreadPool::Impl::RunBlocks(int worker) {
  uint64_t left, done = 0;
  while (const uint64_t share = Claim(left)) {
    const Frame frame{this, worker, caller};
    const FrameScope scope(&frame);
    const int64_t begin = static_cast<int64_t>(blocks - left) * tasks_per_block;
    const int64_t end =
        std::min(begin + static_cast<int64_t>(share) * tasks_per_block, tasks);
    try {
      for (int64_t task = begin; task < end; ++task) body(task, worker);
    } catch (...) {
      Fail(std::current_exception());
    }
    done += share;
  }
  // Once, not block by block: every access to `pending` moves a cache line. A
  // share whose body threw counts as run.
  if (done > 0) Finish(done);
}

// Keeps the first exception and withdraws every unclaimed block.
void ThreadPool::Impl::Fail(std::exception_ptr exception) {
  {
    std::lock_guard lock(mutex);
    if (!error) error = std::move(exception);
  }
  uint64_t word = claim.load();
  while (!claim.compare_exchange_weak(word, word & ~kBlockMask)) {
  }
  // The failing block itself is still pending, so this never ends the region.
  pending -= word & kBlockMask;
}

void ThreadPool::Impl::Finish(uint64_t count) {
  if (pending.fetch_sub(count) != count) return;
  if (!caller_sleeps) return;
  // Taking the lock orders this wake-up after the caller's last check.
  { std::lock_guard lock(mutex); }
  region_done.notify_one();
}

void ThreadPool::Impl::Publish(int64_t task_count, TaskRef f) {
  body = f;
  tasks = task_count;
  const int64_t most_blocks = static_cast<int64_t>(kBlockMask);
  tasks_per_block = (tasks - 1) / most_blocks + 1;
  blocks = static_cast<uint64_t>((tasks - 1) / tasks_per_block + 1);
  caller = current_frame;
  pending = blocks;
  const uint64_t region = (claim.load() >> kBlockBits) + 1;
  claim = region << kBlockBits | blocks;

  const int useful = static_cast<int>(
      std::min<uint64_t>(blocks - 1, static_cast<uint64_t>(sleepers.load())));
  if (useful == 0) return;
  { std::lock_guard lock(mutex); }
  if (active < width) {  // a single call might wake one of those left out
    work_ready.notify_all();
    return;
  }
  for (int i = 0; i < useful; ++i) work_ready.notify_one();
}

// Processor time that the workers have used so far.
std::chrono::nanoseconds ThreadPool::Impl::WorkersTime() {
  std::chrono::nanoseconds total{0};
#if defined(__linux__)
  for (std::thread& thread : threads) {
    clockid_t clock;
    timespec time;
    if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0 ||
        clock_gettime(clock, &time) != 0) {
      continue;
    }
    total += std::chrono::seconds(time.tv_sec) +
             std::chrono::nanoseconds(time.tv_nsec);
  }
#endif
  return total;
}

void ThreadPool::Impl::WaitUntilDone() {
  const auto done = [this] { return pending.load() == 0; };
  if (SpinUntil(done)) return;
  const Clock::time_point begin = Clock::now();
  const std::chrono::nanoseconds worked = WorkersTime();
  {
    std::unique_lock lock(mutex);
    caller_sleeps = true;
    region_done.wait(lock, done);
    caller_sleeps = false;
  }
  // All blocks that were left belonged to other workers. If none of them worked
  // for most of that time, they had no core: the task was late, not long.
  const Clock::time_point now = Clock::now();
  if (now - begin > kLate && WorkersTime() - worked < (now - begin) / 2) {
    NoteLate(now);
  }
}

// Halves the workers for a while. Lateness soon after the last rest doubles the
// next one, so that a core that stays taken costs a few per cent at first and
// almost nothing in the end.
void ThreadPool::Impl::NoteLate(Clock::time_point now) {
  rest =
      now - rest_end < 4 * rest ? std::min(2 * rest, kLongestRest) : kFirstRest;
  rest_end = now + rest;
  resting = true;
  active = std::max(active.load() / 2, 1);
}

void ThreadPool::Impl::EndRest() {
  if (!resting || Clock::now() < rest_end) return;
  resting = false;
  active = width;
}

void ThreadPool::Impl::RunRegion(int64_t task_count, TaskRef f) {
  EndRest();
  if (active == 1) {
    RunInline(task_count, f, 0);
    return;
  }
  Publish(task_count, f);
  RunBlocks(0);
  WaitUntilDone();
  if (error) std::rethrow_exception(std::exchange(error, nullptr));
}

void ThreadPool::Impl::RunInline(int64_t task_count, TaskRef f, int worker) {
  const Frame frame{this, worker, current_frame};
  const FrameScope scope(&frame);
  for (int64_t task = 0; task < task_count; ++task) f(task, worker);
}

ThreadPool::ThreadPool(int threads)
    : width_(threads), hook_(this, {.in_child = [](void* pool) {
                               static_cast<ThreadPool*>(pool)->lost_ = true;
                             }}) {
  if (threads < 1 || threads > kMaxThreads) {
    throw ArgumentError("ThreadPool: threads", StrCat("1 to ", kMaxThreads),
                        StrCat(threads));
  }
  impl_ = std::make_unique<Impl>(threads);
  impl_->Start();
}

ThreadPool::~ThreadPool() {
  // Joining threads that do not exist would take for ever, and so would the
  // destructors of the condition variables they waited for.
  if (lost_) {
    (void)impl_.release();
  } else {
    impl_->Stop();
  }
}

int ThreadPool::width() const { return width_; }

// The child of a fork begins again with its own threads and locks. What the
// parent's pool held stays where it is, unused.
void ThreadPool::Restart() {
  const std::lock_guard lock(restart_);
  if (!lost_) return;
  auto fresh = std::make_unique<Impl>(width_);
  fresh->Start();
  (void)impl_.release();
  impl_ = std::move(fresh);
  lost_ = false;
}

void ThreadPool::ParallelFor(int64_t tasks, TaskRef f) {
  if (tasks <= 0) return;
  if (lost_.load(std::memory_order_acquire)) Restart();
  for (const Frame* frame = current_frame; frame; frame = frame->parent) {
    if (frame->pool == impl_.get()) {
      impl_->RunInline(tasks, f, frame->worker);
      return;
    }
  }
  std::lock_guard turn(impl_->turn);
  if (tasks == 1 || impl_->width == 1) {
    impl_->RunInline(tasks, f, 0);
  } else {
    impl_->RunRegion(tasks, f);
  }
}

}  // namespace tarn
