// How often and how much memory this process has taken from the C library, by
// malloc and its kin or by any operator new: tests compare the counts before
// and after. Linked into tests alone.
#pragma once

#include <cstdint>

namespace tarn::testing {

/// Allocations of all threads since the program began; frees do not count.
/// Under a sanitizer, which replaces the allocator, its hooks count.
int64_t Allocations();

/// The bytes they asked for, all together.
int64_t AllocatedBytes();

}  // namespace tarn::testing
