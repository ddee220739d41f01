// Every case of every kernel, and the machine's own limits.
#pragma once

#include "kernels/bench_case.h"

namespace tarn::bench {

/// FMA peak, copy and read bandwidth, as cases like any other (limits.cc).
void RegisterLimits(Registry& registry);
/// The cases of every <op>_bench.cc; written by bench/CMakeLists.txt.
void RegisterKernels(Registry& registry);

/// All entries; made on the first call, never changed after.
const Registry& Entries();

/// A case with `sets=N` copies of its buffers, taken in turn: with sets that
/// together exceed the caches, every run finds its inputs in memory. Throws
/// ArgumentError for an unknown name or parameter.
std::unique_ptr<Case> MakeCase(std::string_view name, std::string_view params,
                               int threads);

}  // namespace tarn::bench
