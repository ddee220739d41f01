"""llama.cpp's samplers on rows of logits, by the low-level functions of llama-cpp-python.

    python bench/peer_llama_samplers.py < CASES

A line of JSON for each case: {"chain": [[NAME, ARGUMENT, ...], ...], "tokens": [id, ...],
"rows": [[logit, ...], ...]}. The chain is made once, accepts the tokens and is applied to
each row, after which it accepts nothing more. Prints a line for each case: for each row the
ids that are left, their logits, and the id that was selected or null.

The names are those of llama_sampler_init_NAME. The last argument of "dry" is a list of
sequence breakers, which needs "vocabulary": a GGUF file with a tokenizer.
"""

import ctypes
import functools
import json
import math
import sys

import llama_cpp.llama_cpp as c


@functools.lru_cache
def vocabulary(file):
    """Of a GGUF file, whose weights are not loaded; null for none."""
    if file is None:
        return None
    parameters = c.llama_model_default_params()
    parameters.vocab_only = True
    model = c.llama_model_load_from_file(file.encode(), parameters)
    if not model:
        sys.exit(f"{file}: llama.cpp does not load it")
    return c.llama_model_get_vocab(model)


def make(name, arguments, file):
    if name == "dry":
        *numbers, texts = arguments
        breakers = (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))
        return c.llama_sampler_init_dry(vocabulary(file), *numbers, breakers, len(texts))
    return getattr(c, f"llama_sampler_init_{name}")(*arguments)


def applied(chain, row):
    data = (c.llama_token_data * len(row))(
        *(c.llama_token_data(id, logit, 0.0) for id, logit in enumerate(row))
    )
    pointer = ctypes.cast(data, ctypes.POINTER(c.llama_token_data))
    array = c.llama_token_data_array(pointer, len(row), -1, False)
    c.llama_sampler_apply(chain, ctypes.byref(array))
    left = [array.data[i] for i in range(array.size)]
    selected = left[array.selected].id if array.selected >= 0 else None
    left = [(one.id, one.logit) for one in left if one.logit > -math.inf]
    return {"ids": [i for i, _ in left], "logits": [x for _, x in left], "selected": selected}


def run(case):
    chain = c.llama_sampler_chain_init(c.llama_sampler_chain_default_params())
    for name, *arguments in case["chain"]:
        c.llama_sampler_chain_add(chain, make(name, arguments, case.get("vocabulary")))
    for token in case["tokens"]:
        c.llama_sampler_accept(chain, token)
    rows = [applied(chain, row) for row in case["rows"]]
    c.llama_sampler_free(chain)
    return rows


@c.llama_log_callback
def quiet(level, text, data):
    pass


if __name__ == "__main__":
    c.llama_log_set(quiet, ctypes.c_void_p(0))
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
