"""Sides that drive tarn's runtime, and the amount of its work."""

import json
import pathlib
import time

import harness
import runtime_api as runtime


def clocked(name, prepare, work, threads, **keywords):
    """A side whose prepare() stays outside the clock."""

    def run(inner):
        wall_ns = cpu_ns = 0
        for _ in range(inner):
            prepare()
            cpu, wall = time.process_time_ns(), time.perf_counter_ns()
            work()
            wall_ns += time.perf_counter_ns() - wall
            cpu_ns += time.process_time_ns() - cpu
        return wall_ns * 1e-9, cpu_ns * 1e-9

    return harness.Side(name, run, threads, **keywords)


class Work:
    """FLOP and bytes of a model directory's tokens, from its config."""

    def __init__(self, folder):
        config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        # The keys of these sections all differ.
        config = {**config["model"], **config["feed_forward"], **config["norm"]}
        self.config = config
        d_model, layers = config["d_model"], config["n_layers"]
        keys = config["n_heads"] * config["d_key"]
        values = config["n_heads"] * config["d_value"]
        one = d_model * (2 * keys + 2 * values + 2 * config["d_ff"])
        self.layer_weights = layers * one
        self.head_weights = d_model * config["vocab_size"]
        self.per_head = layers * config["n_heads"] * config["d_key"] * config["d_value"]
        self.per_head_chunk = (
            layers * config["n_heads"] * 16 * (config["d_key"] + config["d_value"])
        )

    def weight_bytes(self, weights="f32"):
        """Bytes of weights that each step reads; the embedding's one row is not counted."""
        size = {"f32": 4, "bf16": 2}[weights]
        return (self.layer_weights + self.head_weights) * size

    def step_flop(self):
        return 2.0 * (self.layer_weights + self.head_weights) + 4.0 * self.per_head

    def prefill_flop(self, tokens):
        """FLOP with the head for the last token alone; chunks of 16 count as elsewhere."""
        token = 2.0 * self.layer_weights + 4.0 * self.per_head + self.per_head_chunk
        return tokens * token + 2.0 * self.head_weights


def step_side(name, model, work, weights="f32", most_position=900):
    """One step of one sequence; the state starts again before the positions that a
    learned table may not have."""
    state = runtime.State(model)
    turn = [0]

    def prepare():
        if state.position >= most_position:
            state.reset()

    def one():
        turn[0] = (turn[0] * 5 + 1) % 256
        state.step(turn[0])

    return clocked(
        name,
        prepare,
        one,
        model.threads,
        useful_flop=work.step_flop(),
        executed_flop=work.step_flop(),
        bytes=work.weight_bytes(weights) + 2.0 * model.state_bytes,
        facts={"weights": weights},
    )


def prefill_side(name, model, work, tokens, weights="f32"):
    state, prompt = runtime.State(model), runtime.token_array(tokens)
    flop = work.prefill_flop(tokens)
    return clocked(
        name,
        state.reset,
        lambda: state.prefill(prompt),
        model.threads,
        useful_flop=flop,
        executed_flop=flop,
        bytes=float(work.weight_bytes(weights)),
        facts={"weights": weights, "seq_len": tokens},
    )
