// What lets a program or module that is linked on a newer system run with glibc
// 2.28 (TARN_PORTABLE). Functions that glibc has changed since then are called
// in their earlier version; those that it has added are written here in terms
// of earlier ones. auditwheel finds what is missing here. x86-64 alone: the
// names of the versions differ elsewhere.
#include <pthread.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include <cstdint>
#include <cstdlib>

// The linker takes these definitions before glibc's; no other module sees them.
#define TARN_LOCAL extern "C" __attribute__((visibility("hidden")))
// Declares `earlier` as the version of `name` that glibc had from the
// beginning.
#define TARN_EARLIER(result, earlier, name, ...) \
  extern "C" result earlier(__VA_ARGS__);        \
  __asm__(".symver " #earlier "," #name "@GLIBC_2.2.5")
#pragma GCC diagnostic ignored "-Wmissing-attributes"

// The same algorithms, which also set errno (glibc 2.29 left that to the
// caller).
TARN_EARLIER(double, exp_2_2_5, exp, double);
TARN_EARLIER(double, exp2_2_2_5, exp2, double);
TARN_EARLIER(double, log_2_2_5, log, double);
TARN_EARLIER(double, log2_2_2_5, log2, double);
TARN_EARLIER(double, pow_2_2_5, pow, double, double);
TARN_LOCAL double exp(double x) noexcept { return exp_2_2_5(x); }
TARN_LOCAL double exp2(double x) noexcept { return exp2_2_2_5(x); }
TARN_LOCAL double log(double x) noexcept { return log_2_2_5(x); }
TARN_LOCAL double log2(double x) noexcept { return log2_2_2_5(x); }
TARN_LOCAL double pow(double x, double y) noexcept { return pow_2_2_5(x, y); }

// 2.32: read by libstdc++ before each change of a reference count. False: the
// count is always changed atomically.
TARN_LOCAL char __libc_single_threaded;
char __libc_single_threaded = 0;

// 2.33: functions of their own; before that the header called these.
extern "C" int __xstat(int, const char*, struct stat*);
extern "C" int __lxstat(int, const char*, struct stat*);
extern "C" int __fxstat(int, int, struct stat*);
__asm__(".symver __xstat,__xstat@GLIBC_2.2.5");
__asm__(".symver __lxstat,__lxstat@GLIBC_2.2.5");
__asm__(".symver __fxstat,__fxstat@GLIBC_2.2.5");
constexpr int kStatVersion = 1;
TARN_LOCAL int stat(const char* path, struct stat* found) noexcept {
  return __xstat(kStatVersion, path, found);
}
TARN_LOCAL int lstat(const char* path, struct stat* found) noexcept {
  return __lxstat(kStatVersion, path, found);
}
TARN_LOCAL int fstat(int file, struct stat* found) noexcept {
  return __fxstat(kStatVersion, file, found);
}
TARN_LOCAL int fstat64(int file, struct stat64* found) noexcept {
  return __fxstat(kStatVersion, file, reinterpret_cast<struct stat*>(found));
}

// 2.36: for std::random_device.
TARN_LOCAL uint32_t arc4random() noexcept {
  uint32_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) std::abort();
  return number;
}

// 2.34: libpthread's functions moved into libc. A module asks for libpthread by
// name, which later systems still have.
TARN_EARLIER(int, create_2_2_5, pthread_create, pthread_t*,
             const pthread_attr_t*, void* (*)(void*), void*);
TARN_EARLIER(int, join_2_2_5, pthread_join, pthread_t, void**);
TARN_EARLIER(int, detach_2_2_5, pthread_detach, pthread_t);
TARN_EARLIER(int, once_2_2_5, pthread_once, pthread_once_t*, void (*)());
TARN_EARLIER(int, key_create_2_2_5, pthread_key_create, pthread_key_t*,
             void (*)(void*));
TARN_EARLIER(int, key_delete_2_2_5, pthread_key_delete, pthread_key_t);
TARN_EARLIER(void*, getspecific_2_2_5, pthread_getspecific, pthread_key_t);
TARN_EARLIER(int, setspecific_2_2_5, pthread_setspecific, pthread_key_t,
             const void*);
TARN_EARLIER(int, rdlock_2_2_5, pthread_rwlock_rdlock, pthread_rwlock_t*);
TARN_EARLIER(int, wrlock_2_2_5, pthread_rwlock_wrlock, pthread_rwlock_t*);
TARN_EARLIER(int, unlock_2_2_5, pthread_rwlock_unlock, pthread_rwlock_t*);
TARN_EARLIER(int, getcpuclockid_2_2_5, pthread_getcpuclockid, pthread_t,
             clockid_t*);
TARN_EARLIER(int, sigmask_2_2_5, pthread_sigmask, int, const sigset_t*,
             sigset_t*);
// The first version of this one is that of glibc 2.3.3.
extern "C" int setclock_2_3_3(pthread_condattr_t*, clockid_t);
__asm__(".symver setclock_2_3_3,pthread_condattr_setclock@GLIBC_2.3.3");
TARN_LOCAL int pthread_sigmask(int how, const sigset_t* set,
                               sigset_t* before) noexcept {
  return sigmask_2_2_5(how, set, before);
}
TARN_LOCAL int pthread_condattr_setclock(pthread_condattr_t* attributes,
                                         clockid_t clock) noexcept {
  return setclock_2_3_3(attributes, clock);
}
TARN_LOCAL int pthread_create(pthread_t* thread, const pthread_attr_t* with,
                              void* (*run)(void*), void* data) noexcept {
  return create_2_2_5(thread, with, run, data);
}
TARN_LOCAL int pthread_join(pthread_t thread, void** result) {
  return join_2_2_5(thread, result);
}
TARN_LOCAL int pthread_detach(pthread_t thread) noexcept {
  return detach_2_2_5(thread);
}
TARN_LOCAL int pthread_once(pthread_once_t* flag, void (*run)()) {
  return once_2_2_5(flag, run);
}
TARN_LOCAL int pthread_key_create(pthread_key_t* key,
                                  void (*end)(void*)) noexcept {
  return key_create_2_2_5(key, end);
}
TARN_LOCAL int pthread_key_delete(pthread_key_t key) noexcept {
  return key_delete_2_2_5(key);
}
TARN_LOCAL void* pthread_getspecific(pthread_key_t key) noexcept {
  return getspecific_2_2_5(key);
}
TARN_LOCAL int pthread_setspecific(pthread_key_t key,
                                   const void* value) noexcept {
  return setspecific_2_2_5(key, value);
}
TARN_LOCAL int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  return rdlock_2_2_5(lock);
}
TARN_LOCAL int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  return wrlock_2_2_5(lock);
}
TARN_LOCAL int pthread_rwlock_unlock(pthread_rwlock_t* lock) noexcept {
  return unlock_2_2_5(lock);
}
TARN_LOCAL int pthread_getcpuclockid(pthread_t thread,
                                     clockid_t* clock) noexcept {
  return getcpuclockid_2_2_5(thread, clock);
}

#ifdef TARN_PROGRAM
// 2.34: runs a program's constructors; before that the program passed a
// function that does.
using Constructor = void (*)(int, char**, char**);
extern "C" __attribute__((visibility("hidden")))
Constructor __init_array_start[];
extern "C" __attribute__((visibility("hidden"))) Constructor __init_array_end[];
TARN_EARLIER(int, start_main_2_2_5, __libc_start_main,
             int (*)(int, char**, char**), int, char**, Constructor, void (*)(),
             void (*)(), void*);

static void Construct(int argc, char** argv, char** environment) {
  for (Constructor* each = __init_array_start; each != __init_array_end;
       ++each) {
    (*each)(argc, argv, environment);
  }
}

TARN_LOCAL int __libc_start_main(int (*main)(int, char**, char**), int argc,
                                 char** argv, Constructor, void (*)(),
                                 void (*at_end)(), void* stack_end) {
  return start_main_2_2_5(main, argc, argv, &Construct, nullptr, at_end,
                          stack_end);
}
#endif
