"""A directory of bench/published_shapes.py by tarn's runtime, by transformers, or by
transformers with tarn's kernels: seconds of a prefill and of a token after it, as one line
of JSON. A program, since a process has tarn's kernels or has not.

    python bench/published_step.py FOLDER tarn|transformers|accelerated THREADS [WEIGHTS] [--quick]

FOLDER may be a file for tarn. WEIGHTS: as --weights of tarn, f32 or bf16 of transformers.
"""

import json
import statistics
import sys
import time


# A first call that takes longer than this is its own measurement: what it warms up is
# nothing beside it, and the other runs repeat it.
_LONG_SECONDS = 15.0


def _median(call, times):
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    if times == 1 and first > _LONG_SECONDS:
        return first
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _runtime(folder, threads, weights, tokens, fills, steps):
    import runtime_api as runtime

    with runtime.Model(folder, threads, weights) as model:
        state = runtime.State(model)
        prompt = runtime.token_array(tokens)

        def fill():
            state.reset()
            state.prefill(prompt)

        return _median(fill, fills), _median(lambda: state.step(7), steps)


def _transformers(folder, threads, weights, tokens, fills, steps):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(threads)
    # Scaled dot-product attention of torch, and logits of the last row alone.
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[weights]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model.eval()
    prompt = torch.tensor([[(i * 7919 + i // 251) % 256 for i in range(tokens)]])
    mamba = model.config.model_type.startswith("mamba")
    last = {} if mamba else {"logits_to_keep": 1}
    key = "cache_params" if mamba else "past_key_values"
    with torch.inference_mode():
        fill = _median(lambda: model(input_ids=prompt, use_cache=True, **last), fills)
        held = {key: getattr(model(input_ids=prompt, use_cache=True, **last), key)}
        token = prompt[:, :1]
        step = _median(lambda: model(input_ids=token, use_cache=True, **held), steps)
    return fill, step


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    folder, side, threads = words[0], words[1], int(words[2])
    weights = words[3] if len(words) > 3 else "f32"
    quick = "--quick" in sys.argv
    if side == "accelerated":
        import tarn

        tarn.accelerate_transformers()
    run = _runtime if side == "tarn" else _transformers
    tokens = 64 if quick else 2048
    begun = time.perf_counter(), time.process_time()
    fill, step = run(folder, threads, weights, tokens, 1, 3 if quick else 20)
    wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    print(
        json.dumps({"prefill": fill, "decode": step, "tokens": tokens, "cpu_per_wall": cpu / wall})
    )


if __name__ == "__main__":
    main()
