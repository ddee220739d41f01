"""Texts of the measure `speculation`: seconds of the same text without draft tokens and
with them, in turn, as one line of JSON. A program, since a process has one number of threads.

    python bench/speculated_text.py MODEL DRAFT json|code|plays TEMPERATURE WEIGHTS THREADS
"""

import json
import statistics
import sys
import time

import speculation_models as models
from tarn.runtime import Model, Session


def prompt_of(kind, number):
    if kind == "json":
        return models.records(10_001 + number, 4).removesuffix("\n]") + ",\n"
    if kind == "code":
        # The beginnings of files that were not trained on.
        texts = [one.read_text(encoding="utf-8") for one in models.sources()[1]]
        text = [one for one in texts if len(one) > 3000][number]
        return text[: text.index("\n", 2500) + 1]
    return models.plays()[-3000 * (number + 1) :][:3000]


def draw(session, prompt, sampling, tokens):
    """Tokens of a text, its seconds and those of all threads, without the prompt's."""
    session.begin(prompt, tokens, stop_tokens=(), **sampling)
    drawn = [session.next()]
    start, cpu = time.perf_counter(), time.process_time()
    while (one := session.next()) is not None:
        drawn.append(one)
    seconds = time.perf_counter() - start
    return [token for token, _ in drawn], seconds, time.process_time() - cpu


def main(model_path, draft_path, kind, temperature, weights, threads, quick=False):
    model = Model(model_path, weights=weights, threads=int(threads))
    draft = Model(draft_path, weights=weights, threads=int(threads))
    sources = {"off": None, "ngram": "ngram", "model": draft}
    tokens = 32 if quick else 512
    seconds = {name: [] for name in sources}
    busy = {name: [] for name in sources}
    right = {name: [0, 0] for name in sources}
    # One text a prompt: what a draft is worth differs from text to text.
    for number in range(2 if quick else 7):
        prompt = model.encode(prompt_of(kind, number))
        sampling = {"seed": number, "temperature": float(temperature)}
        texts = {}
        for name, source in sources.items():
            session = Session(model)
            session.speculate(source)
            texts[name], taken, cpu = draw(session, prompt, sampling, tokens)
            seconds[name].append(taken)
            busy[name].append(cpu / taken)
            right[name] = [a + b for a, b in zip(right[name], session.draft_counts)]
        assert texts["off"] == texts["ngram"] == texts["model"]
    found = {
        name: {
            "tokens": tokens,
            "seconds": seconds[name],
            "cpu_per_wall": statistics.median(busy[name]),
            "times": statistics.median(a / b for a, b in zip(seconds["off"], seconds[name])),
            "drafted": right[name][0],
            "accepted": right[name][1],
        }
        for name in sources
    }
    print(json.dumps({"parameters": model.parameters, "sides": found}))


if __name__ == "__main__":
    main(*sys.argv[1:7], quick="--quick" in sys.argv)
