#include "fiber.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace tarn::cuda::emulation {
namespace {

// Kernels keep fragments of matrices on it; pages that are not touched cost
// nothing.
constexpr size_t kStackBytes = 256 * 1024;

}  // namespace

#if defined(__x86_64__)
// swapcontext makes two system calls, and a kernel switches a million times:
// here only what a call preserves is saved.
extern "C" void tarn_emulation_switch(void** save, void* load);
// The first switch to a fiber returns into it, with the fiber and its function
// in two of the registers that a switch restores.
extern "C" void tarn_emulation_enter();
asm(R"(
.text
.globl tarn_emulation_switch
.hidden tarn_emulation_switch
.type tarn_emulation_switch, @function
tarn_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tarn_emulation_switch, .-tarn_emulation_switch
.globl tarn_emulation_enter
.hidden tarn_emulation_enter
.type tarn_emulation_enter, @function
tarn_emulation_enter:
  movq %rbx, %rdi
  jmp *%r12
.size tarn_emulation_enter, .-tarn_emulation_enter
)");
#endif

struct Fiber::Switch {
  char* stack = nullptr;
#if defined(__x86_64__)
  void *inside = nullptr, *outside = nullptr;  // stack pointers

  void Begin(void (*start)(Fiber*), Fiber* self);
  void In() { tarn_emulation_switch(&outside, inside); }
  void Out() { tarn_emulation_switch(&inside, outside); }
#else
  ucontext_t inside, outside;

  void Begin(void (*start)(Fiber*), Fiber* self) {
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = kStackBytes;
    inside.uc_link = nullptr;
    const auto bits = reinterpret_cast<uintptr_t>(self);
    start_ = start;
    makecontext(&inside, reinterpret_cast<void (*)()>(&Enter), 2,
                static_cast<unsigned>(bits >> 32), static_cast<unsigned>(bits));
  }
  void In() { swapcontext(&outside, &inside); }
  void Out() { swapcontext(&inside, &outside); }
  static void Enter(unsigned high, unsigned low) {
    auto* self =
        reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | low);
    self->switch_->start_(self);
  }
  void (*start_)(Fiber*) = nullptr;
#endif
#if defined(__SANITIZE_ADDRESS__)
  const void* outside_stack = nullptr;
  size_t outside_bytes = 0;
  void *fake_inside = nullptr, *fake_outside = nullptr;
#endif
};

#if defined(__x86_64__)
void Fiber::Switch::Begin(void (*start)(Fiber*), Fiber* self) {
  auto** top = reinterpret_cast<void**>(stack + kStackBytes);
  *--top = nullptr;  // no caller: a call leaves the stack at 8 modulo 16
  *--top = reinterpret_cast<void*>(&tarn_emulation_enter);
  *--top = nullptr;                              // rbp
  *--top = self;                                 // rbx
  *--top = reinterpret_cast<void*>(start);       // r12
  for (int i = 0; i < 3; ++i) *--top = nullptr;  // r13 to r15
  inside = top;
}
#endif

Fiber::Fiber() : switch_(std::make_unique<Switch>()) {
  void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  switch_->stack = static_cast<char*>(memory);
  // Beyond the end of a stack is no memory.
  mprotect(memory, 4096, PROT_NONE);
}

Fiber::~Fiber() { munmap(switch_->stack, kStackBytes); }

void Fiber::Prepare(void (*f)(void*), void* argument) {
  f_ = f;
  argument_ = argument;
#if defined(__SANITIZE_ADDRESS__)
  // Frames that were left in the middle have not taken their marks away.
  __asan_unpoison_memory_region(switch_->stack, kStackBytes);
#endif
  switch_->Begin(&Fiber::Start, this);
}

void Fiber::Start(Fiber* self) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->switch_->outside_stack,
                                  &self->switch_->outside_bytes);
#endif
  self->f_(self->argument_);
  for (;;) self->Stop();  // it is not resumed
}

void Fiber::Resume() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&switch_->fake_outside, switch_->stack,
                                 kStackBytes);
#endif
  switch_->In();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(switch_->fake_outside, nullptr, nullptr);
#endif
}

void Fiber::Stop() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&switch_->fake_inside, switch_->outside_stack,
                                 switch_->outside_bytes);
#endif
  switch_->Out();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(switch_->fake_inside, &switch_->outside_stack,
                                  &switch_->outside_bytes);
#endif
}

}  // namespace tarn::cuda::emulation
