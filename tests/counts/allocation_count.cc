#include "allocation_count.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TARN_COUNT_BY_HOOKS 1
#endif

namespace {
std::atomic<int64_t> allocations{0}, allocated_bytes{0};

[[maybe_unused]] void Count(size_t bytes) {
  ++allocations;
  allocated_bytes += static_cast<int64_t>(bytes);
}
}  // namespace

namespace tarn::testing {
int64_t Allocations() { return allocations; }
int64_t AllocatedBytes() { return allocated_bytes; }
}  // namespace tarn::testing

#ifdef TARN_COUNT_BY_HOOKS

// Declared by the sanitizers' allocator_interface.h, which g++ does not bring
// along.
extern "C" int __sanitizer_install_malloc_and_free_hooks(
    void (*allocated)(const volatile void*, size_t),
    void (*freed)(const volatile void*));

namespace {
[[maybe_unused]] const int hooks = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, size_t bytes) { Count(bytes); },
    [](const volatile void*) {});
}  // namespace

#else

// In place of the C library's functions, which stay within reach under these
// names; its operator new ends here as well. free stays as it is.
extern "C" {

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  Count(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  Count(count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  Count(bytes);
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  Count(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  Count(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  Count(bytes);
  void* const taken = __libc_memalign(alignment, bytes);
  if (taken == nullptr) return ENOMEM;
  *memory = taken;
  return 0;
}

}  // extern "C"

#endif
