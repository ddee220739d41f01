/* The kernels' benchmark cases for a driver in another language (Python loads
 * this library by ctypes, so that tarn and its peers are timed in one process).
 * Calls that can fail return 0 on success; otherwise the message is in `error`
 * (`error_bytes` long, terminated). A case is used by one thread at a time.
 */
#ifndef TARN_BENCH_NATIVE_TARN_BENCH_H_
#define TARN_BENCH_NATIVE_TARN_BENCH_H_

#include <stdint.h>

#define TARN_BENCH_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tarn_bench_case tarn_bench_case;

/* The SIMD target in use: "AVX3", "AVX2", ... TARN_FORCE_TARGET is applied by
 * tarn_bench_init, which comes first. */
TARN_BENCH_API int tarn_bench_init(char* error, int64_t error_bytes);
TARN_BENCH_API const char* tarn_bench_simd_target(void);
/* Name of case `index`; NULL at and after the end. */
TARN_BENCH_API const char* tarn_bench_case_name(int64_t index);

/* Allocates and fills the buffers of a case. params: "name=value ..."; what is
 * not named has the case's default, `sets` copies of all buffers are used in
 * turn. The case has its own pool of `threads` workers. */
TARN_BENCH_API int tarn_bench_create(const char* name, const char* params,
                                     int threads, tarn_bench_case** made,
                                     char* error, int64_t error_bytes);
/* FLOP the algorithm needs, FLOP executed, bytes of inputs and outputs. */
TARN_BENCH_API void tarn_bench_work(const tarn_bench_case* self,
                                    double* useful_flop, double* executed_flop,
                                    double* bytes);
/* Runs `inner` times for each of `samples` samples: nanoseconds of a sample by
 * the wall clock and of the whole process's processor time. */
TARN_BENCH_API int tarn_bench_run(tarn_bench_case* self, int64_t samples,
                                  int64_t inner, int64_t* wall_ns,
                                  int64_t* cpu_ns, char* error,
                                  int64_t error_bytes);
TARN_BENCH_API void tarn_bench_free(tarn_bench_case* self);

#ifdef __cplusplus
}
#endif

#endif /* TARN_BENCH_NATIVE_TARN_BENCH_H_ */
