"""Runtime models in forked processes, as preforking servers and multiprocessing
make them. Each program runs by itself, so that a child that hangs is ended."""

import subprocess
import sys

import pytest
from programs import BUILD

pytest.importorskip("tarn.runtime", exc_type=ImportError)

PROGRAM = """
import os, signal, sys, threading
from tarn.runtime import Model

model = Model(sys.argv[1], threads=2)
tokens = list(range(1, 40))
state = model.state()
wanted = model.prefill(state, tokens)

def same(model):
    return (model.prefill(model.state(), tokens) == wanted).all()

def child(body):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # ends a child that hangs
        status = 1
        try:
            status = 0 if body() else 2
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0, body.__name__

def drop():
    global model, state
    del model, state
    return True

def use():
    return same(model) and (model.step(state, 1) is not None)

def another():
    return same(Model(sys.argv[1], threads=2))

def grandchild():
    child(use)
    child(drop)
    return use() and drop()

for body in drop, use, another, grandchild:
    child(body)
assert same(model)

# Children of a process whose other threads are inside the model.
stop = threading.Event()
def busy():
    while not stop.is_set():
        model.prefill(model.state(), tokens)
users = [threading.Thread(target=busy) for _ in range(2)]
for user in users: user.start()
for _ in range(10):
    child(use)
    child(drop)
    child(another)
stop.set()
for user in users: user.join()
assert same(model)

# An orderly exit of a child runs destructors.
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
print("done")
"""


@pytest.mark.parametrize("kind", ["linear", "full"])
def test_models_in_children(kind, tmp_path):
    subprocess.run([BUILD / "write_random_model", tmp_path / kind, kind], check=True)
    run = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, tmp_path / kind],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr
