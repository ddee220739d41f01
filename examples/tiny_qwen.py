"""transformers' own Qwen3.5, tiny, trained on bytes of text on a CPU: first by the forms
that transformers has for CPUs, then by tarn's kernels, with seconds and losses of both.

Usage: .venv/bin/python examples/tiny_qwen.py [UPDATES [TEXT]]   (20, a page of docs/)
Three of four layers are gated delta rules, the fourth is softmax attention. Each side
runs in a separate process, since transformers looks for kernels when a model is
imported.
"""

import pathlib
import statistics
import subprocess
import sys
import time

import torch

ROWS, TOKENS = 2, 512


def train(updates, text):
    """Prints the median seconds of an update, the first and the last loss."""
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    torch.manual_seed(0)
    model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(
        vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=4,
        num_attention_heads=2, num_key_value_heads=1, head_dim=64,
        linear_num_key_heads=2, linear_num_value_heads=4,
        linear_key_head_dim=64, linear_value_head_dim=64,
    ))  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    seconds, losses = [], []
    for _ in range(updates):
        first = torch.randint(len(data) - TOKENS + 1, (ROWS, 1))
        batch = data[first + torch.arange(TOKENS)].long()
        begun = time.perf_counter()
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begun)
        losses.append(loss.item())
    print(statistics.median(seconds), losses[0], losses[-1])


def main(updates="20", text=None, side=None):
    if side is not None:
        if side == "tarn":
            import tarn

            tarn.accelerate_transformers()  # the one line
        train(int(updates), pathlib.Path(text).read_bytes())
        return
    text = text or pathlib.Path(__file__).resolve().parents[1] / "docs" / "attention.md"
    seconds = {}
    for side in ("transformers", "tarn"):
        command = [sys.executable, __file__, updates, str(text), side]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        seconds[side], first, last = map(float, told.split())
        print(f"{side:12} {seconds[side]:8.3f} s an update, loss {first:.3f} to {last:.3f}")
    print(f"{seconds['transformers'] / seconds['tarn']:.1f} times as fast")


if __name__ == "__main__":
    main(*sys.argv[1:])
