"""One of transformers' own models, 100 million drawn weights: seconds of a training step,
of a prefill and of a token that follows it, as one line of JSON. A program, since a process
has tarn's kernels or has not.

    python bench/transformers_step.py qwen3_5 tarn 2 [--quick]
"""

import json
import statistics
import sys
import time


def _qwen3_5(quick):
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    width, layers = (64, 4) if quick else (768, 12)
    heads = width // 64
    return Qwen3_5ForCausalLM(
        Qwen3_5TextConfig(
            vocab_size=8192,
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=max(heads // 4, 1),
            head_dim=64,
            linear_key_head_dim=64,
            linear_value_head_dim=64,
            linear_num_key_heads=heads,
            linear_num_value_heads=heads,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=None,
        )
    )


def _mamba2(quick):
    from transformers import Mamba2Config, Mamba2ForCausalLM

    width, layers = (64, 4) if quick else (768, 24)
    return Mamba2ForCausalLM(
        Mamba2Config(
            vocab_size=8192,
            hidden_size=width,
            num_hidden_layers=layers,
            num_heads=width // 32,
            head_dim=64,
            state_size=64 if quick else 128,
            n_groups=1,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )


MODELS = {"qwen3_5": _qwen3_5, "mamba2": _mamba2}


def _median(call, times):
    call()
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def prepare(side, threads):
    """Has transformers with tarn's kernels or without, before a model's file is imported."""
    if side == "tarn":
        import tarn

        tarn.accelerate_transformers()
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(threads)
    torch.manual_seed(1)


def times(model, tokens, quick, **training):
    """Seconds of each part, medians, and what they are of. training: options of its step."""
    import torch
    import transformers

    def step():
        model.zero_grad()
        model(input_ids=tokens, labels=tokens, **training).loss.backward()

    begun = time.perf_counter(), time.process_time()
    found = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens": tokens.shape[1],
        "training step": _median(step, 2 if quick else 3),
    }
    model.eval()
    with torch.no_grad():
        found["prefill"] = _median(
            lambda: model(input_ids=tokens, use_cache=True), 2 if quick else 3
        )
        cache = model(input_ids=tokens, use_cache=True)
        keys = ("past_key_values", "cache_params", "state")
        held = {key: getattr(cache, key) for key in keys if getattr(cache, key, None) is not None}
        if not held:  # RecurrentGemma fills the cache that it is given
            held = {"past_key_values": transformers.DynamicCache(config=model.config)}
            model(input_ids=tokens, use_cache=True, **held)
        token = tokens[:, :1]
        found["decode"] = _median(
            lambda: model(input_ids=token, use_cache=True, **held), 3 if quick else 20
        )
    wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    return found | {"cpu_per_wall": cpu / wall}


def main():
    name, side, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    quick = "--quick" in sys.argv
    prepare(side, threads)
    import torch

    tokens = torch.randint(3, 8192, (1, 64 if quick else 512))
    print(json.dumps(times(MODELS[name](quick), tokens, quick)))


if __name__ == "__main__":
    main()
