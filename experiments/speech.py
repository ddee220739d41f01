"""Table 3: speech. Spoken digits to letters by CTC, an unseen speaker at the
end; error rates after equal updates, and the time of an epoch by length."""

from __future__ import annotations

import statistics

from experiments.core import (
    ATTENTION_FLAG,
    Experiment,
    JsonDict,
    Progress,
    Settings,
    looks,
    thinned,
    TrainingRun,
    train,
)
from experiments.speech_page import criteria, page

HELD_OUT, TEST = "theo", "yweweler"

# Updates of a model, and seconds an update as planned on two AVX2 cores.
_STEPS = {"quick": 12, "cpu": 2000, "full": 20_000}
_SECONDS = {"linear": 0.05, "softmax": 0.055, "reformer": 0.1, "lstm": 0.095}
# The paper's LSH-4 at full size. A single digit has 45 frames or so: chunks of 32
# cut it in two, one part blind to the other, which the held-out speaker's errors
# show; further rounds would read much the same frames again.
_REFORMER = {"quick": {"rounds": 1, "hash_chunk": 64}, "cpu": {"rounds": 1, "hash_chunk": 64},
             "full": {"rounds": 4, "hash_chunk": 32}}
# Frames of an utterance whose epoch is timed, and frames of an update.
_LENGTHS = {"quick": (100, 200), "cpu": (200, 400, 800, 1600), "full": (200, 400, 800, 1600)}
_FRAMES = {"quick": 200, "cpu": 3200, "full": 6400}
_TIMED = {"quick": 3, "cpu": 5, "full": 8}  # updates; the first is not counted


def _model_flags(settings: Settings, kind: str) -> list[str]:
    """Preset and what differs from it for a kind."""
    full = settings.size == "full"
    if kind == "lstm":
        flags = ["--preset", "speech-lstm"]
        if not full:
            flags += ["--d-model", "256", "--n-layers", "2", "--dropout", "0.05"]
    else:
        flags = ["--preset", "speech" if full else "speech-small",
                 "--attention", ATTENTION_FLAG[kind]]
    if kind == "reformer":
        hashing = _REFORMER[settings.size]
        flags += ["--bits", "8", "--hash-chunk", str(hashing["hash_chunk"]),
                  "--rounds", str(hashing["rounds"])]
    return flags


def _training_flags(settings: Settings, kind: str) -> list[str]:
    flags = _model_flags(settings, kind)
    if kind == "lstm" and settings.size != "full":
        flags += ["--batch", "8", "--seq-len", "400", "--join-frames", "0", "--lr", "0.003",
                  "--warmup", "100", "--schedule", "cosine"]
    if settings.size == "full":
        # CTC finds letters in lone digits first; long utterances alone would
        # stay at the blank for most of the run.
        flags += ["--join-frames", "0", "--seq-len", "400"]
    if settings.size == "quick":
        flags += ["--d-model", "48", "--n-layers", "1", "--warmup", "0"]
    every = {"quick": "6", "cpu": "400", "full": "500"}[settings.size]
    return [*flags, "--eval-every", every,
            "--eval-windows", "8" if settings.size == "quick" else "500"]


def _speakers(settings: Settings) -> list[str]:
    return ["--data", str(_recordings(settings)), "--held-out-speakers", HELD_OUT,
            "--test-speakers", TEST, "--sample-every", "0"]


def _recordings(settings: Settings) -> str:
    """The archive in the set's folder where there is one, else the folder."""
    folder = settings.data("fsdd")
    archive = folder / "fsdd.tar.zst"
    return str(archive if archive.is_file() else folder)


def _error_rates(settings: Settings, progress: Progress, kind: str) -> JsonDict:
    steps = _STEPS[settings.size]
    done = train(settings, progress, f"train {kind}", [
        *_training_flags(settings, kind), *_speakers(settings), "--seed", str(settings.seed),
        "--steps", str(steps), "--checkpoint-every", str(max(1, steps // 8))])
    held_out = looks(done.log, "val_token_error_rate")
    test = dict(looks(done.log, "test_token_error_rate"))
    # The speaker held out chooses the update; the unseen one is then read off.
    best_step, best = min(held_out, key=lambda look: look[1])
    return {
        "kind": kind, "updates": steps, "frames": done.log[-1]["tokens"],
        "seconds": done.seconds, "cpu_seconds": done.cpu_seconds,
        "best_step": best_step, "held_out_error": best, "test_error": test[best_step],
        "last_test_error": test[held_out[-1][0]],
        "curve": thinned(done.log, ["step", "elapsed_s", "loss"], 100),
        "looks": [{"step": step, "held_out_error": rate, "test_error": test[step]}
                  for step, rate in held_out],
    }


def _epoch_frames(done: TrainingRun) -> int:
    """Of the training speakers' recordings, each once, as the trainer counted."""
    return done.log[-1]["epoch_tokens"]


def _epoch(settings: Settings, progress: Progress, kind: str, length: int) -> JsonDict:
    """Seconds in which all frames of the training speakers are learned from
    once, at the rate of whole updates (sound, features, gradient, optimiser)."""
    updates = _TIMED[settings.size]
    flags = [*_model_flags(settings, kind), *_speakers(settings),
             "--join-frames", str(length), "--seq-len", str(max(length, 300)), "--augment", "0",
             "--batch", str(max(1, _FRAMES[settings.size] // length)), "--steps", str(updates),
             "--eval-every", str(updates), "--eval-windows", "1", "--schedule", "constant",
             "--checkpoint-every", str(updates)]
    done = train(settings, progress, f"epoch {kind}, {length} frames", flags)
    rates = [line["tokens_per_s"] for line in done.log[1:]]
    rate = statistics.median(rates)
    frames = _epoch_frames(done)
    return {"kind": kind, "length": length, "updates": updates, "epoch_frames": frames,
            "frames_per_s": rate, "slowest": min(rates), "fastest": max(rates),
            "epoch_s": frames / rate}


def run(settings: Settings, progress: Progress) -> JsonDict:
    """Training first, then the times: the last may run again on a quiet machine
    without the first."""
    kinds = settings.attentions
    lengths = _LENGTHS[settings.size]
    timed = _TIMED[settings.size] * _FRAMES[settings.size] / 3000
    parts = {f"train {kind}": _STEPS[settings.size] * _SECONDS[kind] for kind in kinds}
    parts |= {f"epoch {kind}, {length} frames": 1.5 + timed
              for length in lengths for kind in kinds}
    progress.plan(parts)
    models = [_error_rates(settings, progress, kind) for kind in kinds]
    epochs = [_epoch(settings, progress, kind, length) for length in lengths for kind in kinds]
    return {"seeds": [settings.seed], "held_out": HELD_OUT, "test": TEST,
            "reformer": _REFORMER[settings.size], "epoch_frames": epochs[0]["epoch_frames"],
            "models": models, "epochs": epochs}


EXPERIMENT = Experiment(
    name="speech", title="Speech recognition with CTC", paper="Table 3",
    claim="On speech, linear attention is the fastest transformer per epoch and better than a "
          "Bi-LSTM; softmax is the most accurate.",
    sources=("experiments/speech.py", "src/config", "src/core", "src/data", "src/kernels", "src/torch_nn", "src/torch_ops",
             "src/text", "src/train"),
    data=("fsdd",), attention=("lstm", "softmax", "reformer", "linear"),
    minutes={"quick": 0.4, "cpu": 12, "full": 600},
    run=run, criteria=criteria, page=page)
