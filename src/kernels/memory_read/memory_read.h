// Reads memory as fast as it can be read: the limit that a decode step is
// compared with.
#pragma once

#include <cstdint>

#include "core/executor.h"

namespace tarn {

/// Sum, modulo 2^64, of `count` 64-bit words, read once from front to back in
/// pieces that the workers take in turn. The result does not depend on the
/// executor. words: aligned to 64 bytes; null allowed for count 0.
/// Thread-safe, allocates nothing. Throws ShapeError for a negative count.
uint64_t SumWords(const uint64_t* words, int64_t count, Executor& executor);

/// Bytes per second at which `executor` reads a buffer of `bytes` bytes (at
/// least 1 MiB): the median of `passes` passes over touched memory after one
/// that does not count. A buffer that fits a cache measures that cache.
/// Allocates the buffer. Throws ArgumentError for bytes < 0 or passes < 1.
double ReadBandwidth(int64_t bytes, int passes, Executor& executor);

}  // namespace tarn
