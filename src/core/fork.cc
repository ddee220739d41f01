#include "core/fork.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define TARN_HAS_FORK 1
#endif

#include <new>

namespace tarn {

// All hooks of the process, newest first. Never destroyed: pools of static
// duration end after this file's statics.
class ForkHooks {
 public:
  static ForkHooks& Get() {
    static ForkHooks& hooks = *new ForkHooks;
    return hooks;
  }

  void Add(ForkHook* hook) {
    const std::lock_guard lock(mutex_);
    hook->next_ = first_;
    if (first_ != nullptr) first_->previous_ = hook;
    first_ = hook;
  }

  void Remove(ForkHook* hook) {
    const std::lock_guard lock(mutex_);
    if (hook->previous_ != nullptr) {
      hook->previous_->next_ = hook->next_;
    } else {
      first_ = hook->next_;
    }
    if (hook->next_ != nullptr) hook->next_->previous_ = hook->previous_;
  }

 private:
  ForkHooks() {
#ifdef TARN_HAS_FORK
    pthread_atfork(
        [] {
          Get().mutex_.lock();
          Get().CallEach(&ForkHook::Calls::before);
        },
        [] {
          Get().CallEach(&ForkHook::Calls::after);
          Get().mutex_.unlock();
        },
        [] {
          Get().CallEach(&ForkHook::Calls::after);
          Get().CallEach(&ForkHook::Calls::in_child);
          Get().mutex_.unlock();
        });
#endif
  }

  void CallEach(ForkHook::Call ForkHook::Calls::*which) {
    for (ForkHook* hook = first_; hook != nullptr; hook = hook->next_) {
      if (hook->calls_.*which != nullptr) (hook->calls_.*which)(hook->owner_);
    }
  }

  std::mutex mutex_;
  ForkHook* first_ = nullptr;
};

ForkHook::ForkHook(void* owner, Calls calls) : owner_(owner), calls_(calls) {
  ForkHooks::Get().Add(this);
}

ForkHook::~ForkHook() { ForkHooks::Get().Remove(this); }

ForkHeldMutex::ForkHeldMutex()
    : hook_(&mutex_,
            {.before = [](void* m) { static_cast<std::mutex*>(m)->lock(); },
             .after = [](void* m) { static_cast<std::mutex*>(m)->unlock(); }}) {
}

ForkFreedMutex::ForkFreedMutex()
    : hook_(&mutex_, {.in_child = [](void* m) { new (m) std::mutex; }}) {}

}  // namespace tarn
