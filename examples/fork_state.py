"""One prompt, several continuations: the prompt is read once, and each continuation
starts from a copy of the state. Copying costs the bytes of the state, whatever the
length of the prompt.

Usage: .venv/bin/python examples/fork_state.py MODEL [PROMPT [COPIES [TOKENS]]]
MODEL is the directory of a language model, such as models/demo of `make demo`.
Needs numpy, no torch. fork_state.cc is the same program in C++.
"""

import sys

from tarn.runtime import Model


def main(directory, prompt="Once upon a time", copies=3, tokens=60):
    model = Model(directory)
    state = model.state()
    model.prefill(state, model.encode(prompt))
    print(f"{state.position} tokens read, {state.nbytes} bytes of state")
    for seed in range(int(copies)):
        fork = state.clone()
        text = model.generate(state=fork, max_tokens=int(tokens), seed=seed)
        print(f"{seed}: {prompt}{text}")
    print(f"the state is where it was: {state.position} tokens read")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
