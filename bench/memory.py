"""Peak memory of a call, from the kernel's own count, each in a fresh process:
memory that an allocator or an operator keeps from earlier calls would hide it.

    python bench/memory.py MODULE.MAKER SMALL LARGE THREADS      JSON, on stdout
"""

import ctypes
import importlib
import json
import pathlib
import subprocess
import sys

_STATUS = pathlib.Path("/proc/self/status")
_LIBC = ctypes.CDLL(None)


def _kib(key):
    for line in _STATUS.read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise OSError(f"/proc/self/status: want {key}, got none")


def peak_bytes(call):
    """Bytes by which resident memory grows at most while call() runs. Freed
    memory that the allocator holds is returned first."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # peak := now
    before = _kib("VmRSS")
    call()
    return max(0, _kib("VmHWM") - before) * 1024


def in_fresh_process(maker, small, large, threads):
    """peak_bytes of one run of maker(*large, threads), a side "module.function",
    after one of maker(*small, threads), which loads what any run needs; also the
    run's wall-clock and processor seconds."""
    words = [maker, json.dumps(small), json.dumps(large), str(threads)]
    done = subprocess.run(
        [sys.executable, __file__, *words], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def main():
    sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "python"))
    module, function = sys.argv[1].rsplit(".", 1)
    made = getattr(importlib.import_module(module), function)
    small, large, threads = map(json.loads, sys.argv[2:5])
    sides = [made(*sizes, threads) for sizes in (small, large)]
    sides = [s[0] if isinstance(s, list) else s for s in sides]
    sides[0].run(1)
    took = []
    peak = peak_bytes(lambda: took.extend(sides[1].run(1)))
    print(json.dumps({"peak_bytes": peak, "wall_s": took[0], "cpu_s": took[1]}))


if __name__ == "__main__":
    main()
