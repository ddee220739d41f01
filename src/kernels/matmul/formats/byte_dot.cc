#include "kernels/matmul/formats/byte_dot.h"

#include <atomic>

namespace tarn {
namespace {

std::atomic<bool> allowed{true};

bool CpuHasByteDot() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vnni") > 0;
#else
  return false;
#endif
}

}  // namespace

bool HasByteDot() {
  static const bool has = CpuHasByteDot();
  return has && allowed.load(std::memory_order_relaxed);
}

void AllowByteDot(bool allow) {
  allowed.store(allow, std::memory_order_relaxed);
}

}  // namespace tarn
