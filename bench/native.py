"""tarn's kernels on preallocated, touched buffers: the library that
bench/native builds, loaded by ctypes into the process of the peers."""

import ctypes
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
_ERROR_BYTES = 1024


def _load():
    build = pathlib.Path(os.environ.get("TARN_BUILD", ROOT / "build"))
    path = build / "libtarn_bench.so"
    if not path.is_file():
        raise SystemExit(f"bench: want {path} (build it with `make build`)")
    library = ctypes.CDLL(str(path))
    p, i64 = ctypes.c_void_p, ctypes.c_int64
    library.tarn_bench_simd_target.restype = ctypes.c_char_p
    library.tarn_bench_case_name.restype = ctypes.c_char_p
    library.tarn_bench_case_name.argtypes = [i64]
    library.tarn_bench_create.argtypes = [
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.POINTER(p),
        ctypes.c_char_p,
        i64,
    ]
    library.tarn_bench_work.argtypes = [p] + 3 * [ctypes.POINTER(ctypes.c_double)]
    library.tarn_bench_work.restype = None
    times = ctypes.POINTER(i64)
    library.tarn_bench_run.argtypes = [p, i64, i64, times, times, ctypes.c_char_p, i64]
    library.tarn_bench_free.argtypes = [p]
    library.tarn_bench_free.restype = None
    return library


_LIBRARY = _load()


def _checked(call, *arguments):
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    if call(*arguments, error, _ERROR_BYTES) != 0:
        raise ValueError(error.value.decode())


_checked(_LIBRARY.tarn_bench_init)


def simd_target():
    """The SIMD target the kernels run on, such as "AVX3"."""
    return _LIBRARY.tarn_bench_simd_target().decode()


def case_names():
    names = []
    while (name := _LIBRARY.tarn_bench_case_name(len(names))) is not None:
        names.append(name.decode())
    return names


class Case:
    """One kernel at one shape: Case("matmul", threads=2, rows=64). Parameters
    are listed at the top of each src/kernels/*/*_bench.cc; sets=N rotates over N
    copies of the buffers. Raises ValueError naming a wrong parameter."""

    def __init__(self, name, threads, **params):
        text = " ".join(f"{key}={value}" for key, value in params.items())
        self.name, self.threads, self.params = name, threads, params
        self._case = ctypes.c_void_p()
        _checked(
            _LIBRARY.tarn_bench_create,
            name.encode(),
            text.encode(),
            threads,
            ctypes.byref(self._case),
        )
        numbers = [ctypes.c_double() for _ in range(3)]
        _LIBRARY.tarn_bench_work(self._case, *map(ctypes.byref, numbers))
        self.useful_flop, self.executed_flop, self.bytes = (n.value for n in numbers)

    def run(self, inner=1):
        """Seconds of the wall clock and of the processors for `inner` runs."""
        wall, cpu = ctypes.c_int64(), ctypes.c_int64()
        _checked(
            _LIBRARY.tarn_bench_run,
            self._case,
            1,
            inner,
            ctypes.byref(wall),
            ctypes.byref(cpu),
        )
        return wall.value * 1e-9, cpu.value * 1e-9

    def close(self):
        if self._case:
            _LIBRARY.tarn_bench_free(self._case)
            self._case = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
