// Lines that will be written: a store to a line that the core does not own
// delays all later stores.
#pragma once

#include <cstdint>

namespace tarn {

/// Asks for the lines of `bytes` bytes in order to write them. Compilers make
/// __builtin_prefetch for writes an ordinary one unless the target says that
/// the processor has prefetchw; those that do not have it ignore it.
inline __attribute__((always_inline)) void PrefetchToWrite(const void* from,
                                                           int64_t bytes) {
  const char* line = static_cast<const char*>(from);
  for (int64_t i = 0; i < bytes; i += 64) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(line[i]));
#else
    __builtin_prefetch(line + i, 1, 3);
#endif
  }
}

}  // namespace tarn
