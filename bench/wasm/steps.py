"""The other side of the measure `wasm`: what steps.js does, by libtarn on one thread and
the SIMD target of TARN_FORCE_TARGET.

    steps.py MODEL WEIGHTS
"""

import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import runtime_api as runtime  # noqa: E402

import native  # noqa: E402


def main(model, weights):
    with runtime.Model(model, 1, weights) as opened:
        state = runtime.State(opened)
        facts = {"parameters": opened.parameters, "target": native.simd_target()}
        print(json.dumps(facts), flush=True)
        for line in sys.stdin:
            state.reset()
            cpu, begin = time.process_time(), time.perf_counter()
            for i in range(int(line)):
                state.step(7919 * i % 256)
            seconds = time.perf_counter() - begin
            done = {"seconds": seconds, "cpu": time.process_time() - cpu}
            print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
