"""Several processes train what one would: `tarn train --ranks N` and torchrun."""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time

import conftest
import pytest
from conftest import PROGRAM, TINY, WORDS, figures, log, train

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Losses near 3 of float32 sums in another order, over all updates.
BOUND = 1e-5
# No dropout: a rank draws its own. Rows that 4 ranks share unevenly.
SAME = [*TINY, "--dropout", "0", "--batch", "6", "--long-every", "0", "--threads", "1"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    draw = random.Random(3)
    path = tmp_path_factory.mktemp("ranks") / "text"
    path.write_text("".join(" ".join(draw.choices(WORDS, k=9)) + "\n" for _ in range(900)))
    return path


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("ranks") / "pairs.tsv"
    draw = random.Random(4)
    lines = ["".join(draw.choices("abcdef", k=draw.randint(2, 9))) for _ in range(400)]
    path.write_text("".join(f"{one}\t{one[::-1]}\n" for one in lines))
    return path


def ran(*flags):
    done = train(*flags)
    assert done.returncode == 0, done.stderr
    return done


def losses(folder):
    return [line["loss"] for line in log(folder)]


def close(ours, theirs):
    assert len(ours) == len(theirs)
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
        assert abs(a - b) <= BOUND * max(1.0, abs(b)), (step, a, b)


def task(name, text, pairs):
    if name == "text":
        return ["--data", text, *SAME]
    if name == "copy":
        return ["--generator", "copy", *SAME, "--seq-len", "24"]
    return ["--arch", "seq2seq", "--data", pairs, *SAME, "--seq-len", "12"]


@pytest.mark.parametrize("name", ["text", "copy", "pairs"])
def test_losses_are_those_of_one_rank(tmp_path, text, pairs, name):
    flags = task(name, text, pairs)
    ran(*flags, "--out", tmp_path / "one")
    for ranks in (2, 4) if name == "text" else (2,):
        done = ran(*flags, "--out", tmp_path / f"r{ranks}", "--ranks", ranks)
        close(losses(tmp_path / f"r{ranks}"), losses(tmp_path / "one"))
        assert f"{ranks} ranks" in done.stdout
        lines = log(tmp_path / f"r{ranks}")
        assert all(line["ranks"] == ranks and line["exchange_s"] >= 0 for line in lines)
        for key in ("val_loss", "tokens"):
            wanted, got = (
                {line["step"]: line[key] for line in of if key in line}
                for of in (log(tmp_path / "one"), lines)
            )
            assert wanted and got == pytest.approx(wanted, rel=1e-5), key


def test_same_bits_again_and_a_file_for_the_other_ranks(tmp_path, text):
    flags = ["--data", text, *TINY, "--threads", "1", "--ranks", 2]
    for folder in ("a", "b"):
        ran(*flags, "--out", tmp_path / folder)
    timed = ("exchange_s",)
    both = [
        [{k: v for k, v in line.items() if k not in timed} for line in figures(tmp_path / folder)]
        for folder in ("a", "b")
    ]
    assert both[0] == both[1]
    same = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("a", "b")]
    assert same[0] == same[1]
    assert "rank 1 of 2" in (tmp_path / "a" / "ranks" / "rank-1.log").read_text()


def test_sharded_optimiser_trains_the_same(tmp_path, text):
    flags = ["--data", text, *SAME]
    ran(*flags, "--out", tmp_path / "one")
    done = ran(*flags, "--out", tmp_path / "parts", "--ranks", 2, "--shard-optimizer")
    close(losses(tmp_path / "parts"), losses(tmp_path / "one"))
    # Half of two numbers a parameter, 4 bytes each.
    count = json.loads((tmp_path / "parts" / "checkpoint" / "train.json").read_text())
    assert count["ranks"] == 2
    line = next(one for one in done.stderr.splitlines() if "bytes of optimiser state" in one)
    held = int(line.split(";")[1].split()[0])
    whole = (tmp_path / "one" / "checkpoint" / "optimizer.safetensors").stat().st_size
    assert held <= 0.55 * whole


@pytest.mark.parametrize("ranks", [2, 3])
def test_another_number_of_ranks_resumes(tmp_path, text, ranks):
    flags = ["--data", text, *SAME, "--schedule", "constant"]
    ran(*flags, "--out", tmp_path / "one")
    ran(*flags, "--out", tmp_path / "moved", "--steps", 30)
    done = ran("--out", tmp_path / "moved", "--resume", "--steps", 60, "--ranks", ranks)
    assert "the checkpoint is of 1 ranks" in done.stderr
    close(losses(tmp_path / "moved"), losses(tmp_path / "one"))


@pytest.mark.parametrize(
    ("layers", "positions"),
    [
        ("linear", "sinusoidal"),
        ("linear,full", "rotary"),
        ("local:local_context=8,linear,aft-simple", "learned"),
    ],
)
def test_rows_may_be_cut_over_ranks(tmp_path, text, layers, positions):
    """Whole rows on one rank, halves of them on two, both at once on four."""
    flags = [
        "--data",
        text,
        *SAME,
        "--layers",
        layers,
        "--n-layers",
        3,
        "--positions",
        positions,
        "--seq-len",
        17,
    ]
    ran(*flags, "--out", tmp_path / "one")
    for ranks in (2, 4) if layers == "linear" else (2,):
        folder = tmp_path / f"r{ranks}"
        done = ran(*flags, "--out", folder, "--ranks", ranks, "--sequence-parallel", 2)
        close(losses(folder), losses(tmp_path / "one"))
        assert "of each the tokens 0 to 8" in done.stderr
        given = {line["sequence_bytes"] for line in log(folder)}
        assert len(given) == 1 and f"exchanges {min(given)} bytes a rank" in done.stderr


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def torchrun(*flags, restarts=0, where=("--standalone", "--nproc-per-node", "2")):
    """One agent, in a separate session, so that its processes can be found."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *where,
        "--max-restarts",
        str(restarts),
        "-m",
        "tarn.train",
        *map(str, flags),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    build = pathlib.Path(PROGRAM).resolve().parent
    environment.setdefault("TARN_LIBRARY", str(build / "libtarn_pytorch.so"))
    environment.setdefault("TARN_TRAIN_LIBRARY", str(build / "libtarn_train.so"))
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def workers(agent):
    """Process numbers of the ranks that an agent has started."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if entry.name.isdigit() and parent == agent.pid:
            found.append(int(entry.name))
    return sorted(found)


def wait_for_line(agent, folder, count):
    path = folder / "log.jsonl"
    while agent.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def undisturbed(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks") / "whole"
    ran("--data", text, *TINY, "--threads", "1", "--out", folder, "--ranks", 2)
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("draw", range(int(os.environ.get("TARN_KILLED_RANKS", "2"))))
def test_a_killed_rank_is_started_again_and_nothing_is_lost(tmp_path, text, undisturbed, draw):
    """At a drawn update, either rank, of one agent or of two: the weights are those of
    an undisturbed run, bit for bit."""
    flags = ["--data", text, *TINY, "--threads", "1", "--out", tmp_path / "hurt"]
    chance = random.Random(draw)
    if draw % 2 == 0:
        agents = [torchrun(*flags, restarts=3)]
    else:  # as on two machines
        where = [
            "--nnodes",
            "2",
            "--nproc-per-node",
            "1",
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            f"127.0.0.1:{free_port()}",
            "--local-addr",
            "127.0.0.1",
        ]
        agents = [torchrun(*flags, restarts=3, where=where) for _ in range(2)]
    if wait_for_line(agents[0], tmp_path / "hurt", chance.randint(1, 50)):
        victims = [one for agent in agents for one in workers(agent)]
        if victims:
            os.kill(chance.choice(victims), signal.SIGKILL)
    for agent in agents:
        _, errors = agent.communicate(timeout=600)
        assert agent.returncode == 0, errors
    assert (tmp_path / "hurt" / "model.safetensors").read_bytes() == undisturbed


def test_a_killed_rank_ends_the_others(tmp_path, text):
    """Without restarts: an exit status, a line on which rank, a checkpoint."""
    agent = torchrun(
        "--data",
        text,
        *TINY,
        "--steps",
        100_000,
        "--threads",
        "1",
        "--timeout",
        "20",
        "--out",
        tmp_path / "out",
    )
    assert wait_for_line(agent, tmp_path / "out", 10)
    os.kill(workers(agent)[-1], signal.SIGKILL)
    _, errors = agent.communicate(timeout=300)
    assert agent.returncode != 0
    assert "exitcode  : -9" in errors
    assert (tmp_path / "out" / "checkpoint" / "train.json").is_file()


def test_a_killed_rank_is_named_by_the_launcher(tmp_path, text):
    process = conftest.start(
        "--data",
        text,
        *TINY,
        "--steps",
        100_000,
        "--threads",
        "1",
        "--ranks",
        2,
        "--out",
        tmp_path / "out",
    )
    assert wait_for_line(process, tmp_path / "out", 5)
    os.kill(workers(process)[-1], signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGKILL
    assert b"of 2 was ended by signal 9; --resume continues" in errors


def test_ctrl_c_saves_once_and_says_how_to_go_on(tmp_path, text):
    process = conftest.start(
        "--data",
        text,
        *TINY,
        "--steps",
        100_000,
        "--threads",
        "1",
        "--ranks",
        2,
        "--out",
        tmp_path / "out",
    )
    assert wait_for_line(process, tmp_path / "out", 5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert b"--resume --ranks 2" in errors
    step = json.loads((tmp_path / "out" / "checkpoint" / "train.json").read_text())["step"]
    assert step == len(log(tmp_path / "out"))


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--ranks", 0], 2, "--ranks: want a whole number from 1 to 1024"),
        (["--ranks", 2, "--backend", "smoke"], 2, "--backend"),
        (["--ranks", 2, "--data", "-"], 2, "--data: want files"),
        (["--ranks", 2, "--data", "nothing.txt"], 3, "nothing.txt"),
        (["--ranks", 3, "--sequence-parallel", 2], 2, "--sequence-parallel: want a divisor"),
        (["--sequence-parallel", 2], 2, "--sequence-parallel: want 1, or as many processes"),
        (
            ["--ranks", 2, "--sequence-parallel", 2, "--arch", "lstm"],
            2,
            "--sequence-parallel: want",
        ),
        (
            ["--ranks", 2, "--sequence-parallel", 2, "--attention", "conditional-full"],
            2,
            "sequences can be cut over ranks",
        ),
    ],
)
def test_usage_is_refused_as_with_one_rank(tmp_path, flags, code, words):
    done = train(
        *flags, "--out", tmp_path / "out", *(() if "--data" in flags else ("--generator", "copy"))
    )
    assert done.returncode == code, done.stderr
    assert words in done.stderr
