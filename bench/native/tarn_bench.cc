#include "tarn_bench.h"

#include <time.h>

#include <cstdio>
#include <exception>

#include "kernels/simd_target.h"
#include "registry.h"

struct tarn_bench_case {
  tarn_bench_case(const char* name, const char* params, int threads)
      : pool(threads), body(tarn::bench::MakeCase(name, params, threads)) {}
  tarn::ThreadPool pool;
  std::unique_ptr<tarn::bench::Case> body;
};

namespace {

int64_t Now(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * int64_t{1000000000} + t.tv_nsec;
}

template <typename F>
int Guard(char* error, int64_t error_bytes, F f) {
  try {
    f();
    return 0;
  } catch (const std::exception& e) {
    std::snprintf(error, static_cast<size_t>(error_bytes), "%s", e.what());
    return 1;
  }
}

}  // namespace

int tarn_bench_init(char* error, int64_t error_bytes) {
  return Guard(error, error_bytes,
               [] { tarn::ApplySimdTargetFromEnvironment(); });
}

const char* tarn_bench_simd_target(void) { return tarn::SimdTargetName(); }

const char* tarn_bench_case_name(int64_t index) {
  const tarn::bench::Registry& entries = tarn::bench::Entries();
  const bool known = index >= 0 && index < static_cast<int64_t>(entries.size());
  return known ? entries[index].name : nullptr;
}

int tarn_bench_create(const char* name, const char* params, int threads,
                      tarn_bench_case** made, char* error,
                      int64_t error_bytes) {
  return Guard(error, error_bytes,
               [&] { *made = new tarn_bench_case(name, params, threads); });
}

void tarn_bench_work(const tarn_bench_case* self, double* useful_flop,
                     double* executed_flop, double* bytes) {
  const tarn::bench::Work& work = self->body->work();
  *useful_flop = work.useful_flop;
  *executed_flop = work.executed_flop;
  *bytes = work.bytes;
}

int tarn_bench_run(tarn_bench_case* self, int64_t samples, int64_t inner,
                   int64_t* wall_ns, int64_t* cpu_ns, char* error,
                   int64_t error_bytes) {
  return Guard(error, error_bytes, [&] {
    for (int64_t sample = 0; sample < samples; ++sample) {
      const int64_t cpu = Now(CLOCK_PROCESS_CPUTIME_ID);
      const int64_t wall = Now(CLOCK_MONOTONIC);
      for (int64_t i = 0; i < inner; ++i) self->body->Run(self->pool);
      wall_ns[sample] = Now(CLOCK_MONOTONIC) - wall;
      cpu_ns[sample] = Now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    }
  });
}

void tarn_bench_free(tarn_bench_case* self) { delete self; }
