// Whether the CPU has byte dot products (AVX-512 VNNI) next to the SIMD target
// AVX3, which does not imply them.
#pragma once

namespace tarn {

/// Asked once and remembered. Thread-safe.
bool HasByteDot();

/// For tests and benchmarks: without them from now on, or, with true, again
/// where the CPU has them. No product may run meanwhile.
void AllowByteDot(bool allow);

}  // namespace tarn
