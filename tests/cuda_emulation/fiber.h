// A function that runs on a separate stack and may stop in the middle: one
// thread of an emulated block.
#pragma once

#include <cstddef>
#include <memory>

namespace tarn::cuda::emulation {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes the fiber ready to call f(argument) from the start. What an earlier
  /// function left on the stack is forgotten, not destroyed.
  void Prepare(void (*f)(void*), void* argument);
  /// Runs it until it stops or its function returns. Called outside fibers.
  void Resume();
  /// Goes back to who resumed it. Called inside.
  void Stop();

 private:
  struct Switch;
  static void Start(Fiber* self);

  void (*f_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::unique_ptr<Switch> switch_;
};

}  // namespace tarn::cuda::emulation
