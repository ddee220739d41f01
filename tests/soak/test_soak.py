"""The soak test itself, for a few seconds: what it checks must hold at any length."""

import json
import os
import pathlib
import random
import subprocess
import sys

from client import Client, Known, Shared

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAM = os.environ.get("TARN_PROGRAM", str(ROOT / "build" / "tarn"))


def soak(*words, program=PROGRAM):
    return subprocess.run(
        [sys.executable, "-B", HERE / "soak.py", "--program", program, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_random_sessions_and_crashes():
    done = soak("--seconds", 12, "--clients", 6)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["faults"] == [] and found["kills"] == 2
    assert found["calls_total"] > 50 and found["sessions_checked_after_kills"] > 0


class Fake:
    starts = 1


class Says:
    """A client whose server gives fixed answers."""

    def __init__(self, *answers):
        self.client = Client(Shared(Fake(), ["m"]), random.Random(1), "c")
        self.client.call = lambda _, path, *body: (200, {}) if path == "/health" else answers
        self.client.sessions["s"] = Known("m", [1, 2, 3], parked=True, past={(1, 2, 3), (1,)})

    def faults(self, act):
        getattr(self.client, act)()
        return self.client.shared.faults


def test_other_tokens_are_a_fault():
    assert not Says(200, {"tokens": [1, 2, 3]}).faults("check")
    assert Says(200, {"tokens": [1, 2, 4]}).faults("check")
    assert Says(500, {}).faults("check")
    shared = Shared(Fake(), ["m"])
    shared.compare(("text",), [1])
    shared.compare(("text",), [1])
    assert not shared.faults
    shared.compare(("text",), [2])
    assert shared.faults


def test_what_was_parked_must_be_as_it_was():
    assert not Says(200, {"tokens": [1, 2, 3], "pending": 0, "marks": {}}).faults("recover")
    assert Says(404, {}).faults("recover")
    assert Says(200, {"tokens": [1], "pending": 0, "marks": {}}).faults("recover")


def test_what_was_not_parked_may_be_gone_or_older():
    for answer in ((404, {}), (200, {"tokens": [1], "pending": 0, "marks": {}})):
        one = Says(*answer)
        one.client.sessions["s"].parked = False
        assert not one.faults("recover")
    one = Says(200, {"tokens": [2], "pending": 0, "marks": {}})
    one.client.sessions["s"].parked = False
    assert one.faults("recover")
