"""The copy task (Katharopoulos et al. 2020, section 4.1) in 40 lines: a model reads
a string of symbols and a separator and writes the string again, as an RNN.

Usage: .venv/bin/python examples/copy_task.py [LENGTH [UPDATES]]    (12 and 300)
It trains in seconds on two cores and prints the share of symbols that are right.
"""

import sys

import torch

import tarn

SYMBOLS, SEPARATOR = 10, 0


def rows(count, length):
    """Strings of symbols 1 to 10, the separator, the strings again: [count, 2 length + 1]."""
    strings = torch.randint(1, SYMBOLS + 1, (count, length))
    return torch.cat([strings, torch.full((count, 1), SEPARATOR), strings], dim=1)


def main(length=12, updates=300):
    torch.manual_seed(0)
    model = tarn.models.LanguageModel(
        vocab_size=SYMBOLS + 1, d_model=64, n_layers=2, n_heads=4, positions="sinusoidal",
        tokenizer="ids",
    )  # fmt: skip
    optimizer = tarn.optim.AdamW(model.parameters(), lr=3e-3)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 1 - done / updates)
    for _ in range(updates):
        batch = rows(32, length)
        logits = model(batch[:, :-1])[:, length:]  # only the copy can be predicted
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, length + 1 :].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()

    held_out = rows(100, length)
    prompts, want = held_out[:, : length + 1], held_out[:, length + 1 :]
    copies = tarn.models.generate(model.eval(), prompts, length, temperature=0)
    print("read: ", *want[0].tolist())
    print("wrote:", *copies[0].tolist())
    print(f"right: {(copies == want).float().mean():.1%} of {want.numel()} symbols")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
