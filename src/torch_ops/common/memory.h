// Memory of results and scratch: blocks are kept and handed out again.
// The C library returns them to the system when freed, and the next pass over
// fresh pages costs ten times a pass over pages that are there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tarn::ops {

/// An uninitialised dense tensor on the CPU. From 64 KiB on its memory comes
/// from tarn's cache and returns there when the last reference goes; the cache
/// holds no more than a quarter above what was in use at one time.
/// Thread-safe.
at::Tensor EmptyDense(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);

/// The same on the device of `like`; on others than the CPU from torch's
/// allocator.
at::Tensor EmptyOn(const at::Tensor& like, at::IntArrayRef sizes,
                   at::ScalarType dtype = at::kFloat);

struct MemoryUse {
  int64_t in_use_bytes = 0;
  int64_t cached_bytes = 0;  // free, held for the next call
  int64_t peak_bytes = 0;    // largest in_use_bytes so far
};
MemoryUse CacheUse();

/// Gives every free block back to the system. What is in use stays.
void ReleaseCachedMemory();

}  // namespace tarn::ops
