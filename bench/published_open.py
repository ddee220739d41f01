"""Opens a model in a fresh process and takes 10 tokens: seconds to the logits after them,
and the memory that this takes, as one line of JSON. weight_bytes: as float32.

    python bench/published_open.py FOLDER|FILE.gguf THREADS [WEIGHTS]
"""

import json
import pathlib
import sys
import time

import runtime_api as runtime


def _bytes(key):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status: want {key}, got none")


def main():
    path, threads = sys.argv[1], int(sys.argv[2])
    weights = sys.argv[3] if len(sys.argv) > 3 else "f32"
    tokens = runtime.token_array(10)
    before = _bytes("VmRSS")
    wall, cpu = time.perf_counter(), time.process_time()
    model = runtime.Model(path, threads, weights)
    state = runtime.State(model)
    state.prefill(tokens)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        json.dumps(
            {
                "seconds": wall,
                "cpu_per_wall": cpu / wall,
                "resident_bytes": _bytes("VmRSS") - before,
                "peak_bytes": _bytes("VmHWM") - before,
                "weight_bytes": 4 * model.parameters,
            }
        )
    )


if __name__ == "__main__":
    main()
