// What a fork leaves unusable in the child, and how it becomes usable again: a
// child has the thread that forked and no other, and every lock as it was.
#pragma once

#include <mutex>

namespace tarn {

/// Calls made around every fork of this process while the object lives, on the
/// thread that forks. `before` runs in the parent, `after` in the parent and in
/// the child, `in_child` in the child alone; each may be null. They must not
/// throw and must not create or destroy a ForkHook. Thread-safe.
class ForkHook {
 public:
  using Call = void (*)(void* owner);
  struct Calls {
    Call before = nullptr, after = nullptr, in_child = nullptr;
  };
  ForkHook(void* owner, Calls calls);
  ~ForkHook();
  ForkHook(const ForkHook&) = delete;
  ForkHook& operator=(const ForkHook&) = delete;

 private:
  friend class ForkHooks;
  void* const owner_;
  const Calls calls_;
  ForkHook* previous_ = nullptr;
  ForkHook* next_ = nullptr;
};

/// A mutex for short sections whose data the child continues to use: a fork
/// waits until no thread is inside. Must not be held by a thread that forks.
class ForkHeldMutex {
 public:
  ForkHeldMutex();
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  ForkHook hook_;
};

/// A mutex for long sections whose data begins afresh with each: a fork does
/// not wait, and in the child the mutex is free. A thread that forks while it
/// holds the mutex must not unlock it in the child.
class ForkFreedMutex {
 public:
  ForkFreedMutex();
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  ForkHook hook_;
};

}  // namespace tarn
