"""Peak memory of a call, from the kernel's own count, each in a fresh process:
memory that an allocator or an operator keeps from earlier calls would hide it.

    python bench/memory.py MAKER N THREADS       bytes, on stdout
"""

import ctypes
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


def in_fresh_process(maker, seq_len, threads):
    """peak_bytes of one forward + gradient of attention_sides.<maker> at
    1 x seq_len x 8 heads x 64."""
    words = [maker, str(seq_len), str(threads)]
    done = subprocess.run(
        [sys.executable, __file__, *words], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def main():
    import attention_sides

    maker, seq_len, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    made = getattr(attention_sides, maker)
    # Libraries and thread pools are there before the count begins.
    small, large = (made(1, n, 8, 64, threads) for n in (64, seq_len))
    sides = [s[0] if isinstance(s, list) else s for s in (small, large)]
    sides[0].run(1)
    print(peak_bytes(lambda: sides[1].run(1)))


if __name__ == "__main__":
    main()
