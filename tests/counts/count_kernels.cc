// Runs one benchmark case of a kernel under valgrind's callgrind, which counts
// the instructions of CountedRun alone (--toggle-collect): buffers are made and
// filled before it.
//   count_kernels --about                  what the counts depend on, one line
//   count_kernels CASE "name=value ..."    a case of src/kernels/*/*_bench.cc
// The SIMD target is the one that TARN_FORCE_TARGET names.
#include <cstdio>
#include <exception>
#include <memory>
#include <string_view>

#include "core/executor.h"
#include "hwy/highway.h"
#include "kernels/bench_case.h"
#include "kernels/simd_target.h"
#include "registry.h"

// C linkage: the name that --toggle-collect asks for is the plain one.
extern "C" __attribute__((noinline)) void CountedRun(tarn::bench::Case* kernel,
                                                     tarn::Executor* executor) {
  kernel->Run(*executor);
}

namespace {

// Another compiler or another Highway gives other instructions for the same
// source: counts are compared within one pair of them.
void PrintAbout() {
#if defined(__clang__)
  const char* const compiler = "clang";
  const int major = __clang_major__, minor = __clang_minor__,
            patch = __clang_patchlevel__;
#else
  const char* const compiler = "gcc";
  const int major = __GNUC__, minor = __GNUC_MINOR__,
            patch = __GNUC_PATCHLEVEL__;
#endif
  std::printf("%s %d.%d.%d, highway %d.%d.%d, target %s\n", compiler, major,
              minor, patch, HWY_MAJOR, HWY_MINOR, HWY_PATCH,
              tarn::SimdTargetName());
}

int Run(int count, char** arguments) {
  tarn::ApplySimdTargetFromEnvironment();
  if (count == 2 && std::string_view(arguments[1]) == "--about") {
    PrintAbout();
    return 0;
  }
  if (count != 3) {
    std::fprintf(stderr,
                 "count_kernels: --about, or CASE \"name=value ...\"\n");
    return 2;
  }
  const std::unique_ptr<tarn::bench::Case> kernel =
      tarn::bench::MakeCase(arguments[1], arguments[2], 1);
  tarn::SerialExecutor serial;
  // Once uncounted: symbols are bound and the SIMD target is chosen.
  kernel->Run(serial);
  CountedRun(kernel.get(), &serial);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return Run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "count_kernels: %s\n", error.what());
    return 2;
  }
}
