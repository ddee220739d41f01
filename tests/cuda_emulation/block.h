// Blocks of threads on the CPU: what the emulated cuda_device.h stands on.
#pragma once

#include <cstddef>

namespace tarn::cuda::emulation {

/// Runs f(argument) once per thread of the grid, one block after the other on
/// the calling thread. A block's threads run in an order that changes from
/// launch to launch, so that results which depend on it differ. Throws
/// std::logic_error where a kernel breaks a rule of the device: threads that
/// wait at different barriers, a barrier that others have left, writes beyond
/// shared memory, addresses that are not aligned.
void Run(const unsigned (&grid)[3], const unsigned (&block)[3],
         size_t shared_bytes, void (*f)(const void*), const void* argument);

/// The block's shared memory: NaN until written.
char* BlockMemory();
/// Throws unless [at, at + bytes) is in it and `at` a multiple of `alignment`.
void CheckShared(const void* at, size_t bytes, size_t alignment);
void CheckAligned(const void* at, size_t alignment);

/// Waits for all threads of the block: barrier 0; or for `threads` of them.
void WaitBlock();
void WaitSome(int barrier, int threads);
/// Waits for all 32 lanes of the warp; the last calls work(lanes), lanes[i]
/// being what lane i gave. All must have come with the same work.
void Together(void* mine, void (*work)(void* const* lanes));

/// This thread's copies: they are made when waited for, and what they will
/// overwrite is NaN until then.
void StartCopy(void* to, const void* from, size_t bytes, size_t valid);
void EndGroup();
void FinishCopies(int pending_groups);

/// What MultiprocessorCount answers: kernels cut their work by it.
int Multiprocessors();
void SetMultiprocessors(int count);

}  // namespace tarn::cuda::emulation
