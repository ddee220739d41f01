#pragma once

namespace tarn {

// A hint to the CPU, within a loop that polls: it leaves a sibling thread the
// core's units for some 40 ns.
inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tarn
