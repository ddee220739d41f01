"""Each recurrent text model of transformers, a few layers 512 to 1,024 wide with drawn weights:
seconds of a training step, of a prefill and of a token that follows it, as one line of JSON.
A program, since a process has tarn's kernels or has not.

    python bench/transformers_classes.py tarn 2 [--quick] [NAME ...]
"""

import json
import pathlib
import sys

import transformers_step

# The configurations are those of the tests.
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/python/flash_linear"))


def main():
    side, threads, *names = (word for word in sys.argv[1:] if word != "--quick")
    quick = "--quick" in sys.argv
    transformers_step.prepare(side, int(threads))
    import torch
    import transformers_table

    tokens = torch.randint(3, 90, (1, 64 if quick else 512))
    found = {}
    for name in names or transformers_table.MODELS:
        model = transformers_table.model(name, 1 if quick else 8)
        # xLSTM cannot be trained with a cache.
        found[name] = transformers_step.times(model, tokens, quick, use_cache=False)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
