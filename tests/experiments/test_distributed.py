"""The experiment of several machines: its plan, its criteria and its page, on times that a
known model gives; and its ranks, where they are quick."""

import copy

import pytest

from experiments import distributed
from experiments.core import ExperimentError, Figures
from experiments.core.progress import Progress
from experiments.core.settings import Settings
from experiments.distributed import EXPERIMENT, Collectives
from experiments.ranks import alpha_beta, predictions, trainer
from experiments.ranks.alpha_beta import Constants
from experiments.ranks.repeats import repeats_of

KNOWN = Constants(1e-4, 4e-5, 8e-10)


class Made(Collectives):
    """Answers by the model itself."""

    def ask(self, request):
        on = request["network"]
        rows = []
        for case in request["cases"]:
            row = case | {
                "ranks": request["ranks"],
                "simulated": on is not None,
                **(on or {"latency_s": 0.0, "rate_bit_s": 0.0}),
            }
            sent = 1.02 * alpha_beta.sent(case["op"], case["bytes"], request["ranks"])
            rows.append(
                case
                | {
                    "seconds": alpha_beta.predicted_seconds(row, KNOWN, 2),
                    "sent": sent if on else None,
                }
            )
        return {"rows": rows}


def trained(folder, ranks, mode, flags, network=None, timeout_s=0.0):
    """Updates by the model, too."""
    value = {flag: flags[flags.index(flag) + 1] for flag in flags if flag.startswith("--")}
    shape = predictions.Shape("", int(value["--d-model"]), int(value["--n-layers"]), 4, 32)
    tokens = int(value["--batch"]) * int(value["--seq-len"])
    compute = 1e-11 * tokens * shape.parameters / int(value["--threads"])
    step, sent, exchange = compute, None, 0.0
    if ranks > 1:
        link = (
            KNOWN.link(1e-4, 1e9, alpha_beta.shared_by(ranks, 2, True))
            if network
            else (KNOWN.link(shared=alpha_beta.shared_by(ranks, 2, False)))
        )
        exchange = predictions.exchange_s(shape, ranks, mode, link)
        step = compute / ranks * max(1, ranks / 2) + exchange
        sent = 1.01 * predictions.sent_bytes(shape, ranks, mode, shape.parameters)
    return {
        "step_s": step,
        "updates": 10,
        "sent": sent if network else None,
        "exchange_s": exchange,
        "parameters": shape.parameters,
        "peak_bytes": 2e8 + 1e4 * tokens / ranks,
    }


class NoNetwork:
    """In place of one."""

    def __init__(self, *asked):
        self.asked = asked

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


@pytest.fixture
def made(monkeypatch, tmp_path):
    """A result of some size as this machine would store it."""
    monkeypatch.setattr(distributed, "Collectives", Made)
    monkeypatch.setattr(distributed, "cores", lambda: 2)
    monkeypatch.setattr(distributed.trainer, "train_ranks", trained)
    monkeypatch.setattr(distributed.network, "Network", NoNetwork)

    def make(size="cpu", refused="", missing=""):
        monkeypatch.setattr(distributed.network, "refused", lambda: refused)
        monkeypatch.setattr(distributed.trainer, "missing", lambda: missing)
        settings = Settings(
            EXPERIMENT, size, tmp_path / (size + refused[:1] + missing[:1]), threads=2
        )
        measured = EXPERIMENT.run(settings, Progress("distributed", quiet=True))
        return {"size": size, "machine": {}, "measured": measured}

    return make


def holds(result):
    return {one.name: one.holds for one in EXPERIMENT.criteria(result) if one.claims}


def lost(result, change):
    """Names of the criteria that a change of the result takes away."""
    before, other = holds(result), copy.deepcopy(result)
    change(other["measured"])
    after = holds(other)
    return [name for name in before if before[name] and after[name] is False]


def test_all_hold_where_the_model_is_true(made):
    result = made()
    assert len(holds(result)) == 8 and all(holds(result).values())
    fits = result["measured"]["fits"]
    assert fits["simulated"]["message_s"] == pytest.approx(KNOWN.message_s, rel=0.05)
    assert fits["simulated"]["checked"]["worst"] < 0.05


def test_every_criterion_can_fail(made):
    result = made()

    def states_grow(measured):
        for row in measured["passing"]:
            if row["op"] == "all_gather" and row["sent"]:
                row["sent"] *= 1.0 + row["length"] / 131072

    def slow_states(measured):
        for row in measured["passing"]:
            row["seconds"] *= 1e4 if row["op"] == "all_gather" else 1

    def other_times(measured):
        for row in measured["rows"]:
            row["foretold_s"] *= 1.5

    def other_steps(measured):
        for row in measured["trained"]:
            row["step_s"] *= 3

    def updates_grow(measured):
        for row in measured["trained"]:
            if row["sent"]:
                row["sent"] *= 1 + row["tokens"] / 8192

    def other_keys(measured):
        for row in measured["passing"]:
            if row["op"] == "ring" and row["sent"]:
                row["sent"] = 5e6

    def whole_rows(measured):
        for row in measured["held"]:
            row["peak_bytes"] *= row["ranks"]

    assert any(name.startswith("trainer: peak memory") for name in lost(result, whole_rows))
    assert any(name.startswith("states: bytes") for name in lost(result, states_grow))
    assert any(name.startswith("time to exchange") for name in lost(result, slow_states))
    assert lost(result, other_times) == ["model: median error on points not used for the fit"]
    assert lost(result, other_steps) == ["trainer: median error of the predicted time of an update"]
    assert any(name.startswith("trainer: bytes") for name in lost(result, updates_grow))
    assert any(name.startswith("ring attention") for name in lost(result, other_keys))


def test_the_opposite_is_named(made):
    result = made()
    for row in result["measured"]["passing"]:
        if row["op"] == "all_gather" and row["sent"]:
            row["sent"] *= row["length"]
    assert [one.part for one in EXPERIMENT.criteria(result) if one.opposite] == [
        "bytes of states do not grow with the length"
    ]


def test_what_it_was_not_fitted_to_checks_it(made):
    rows = made()["measured"]["rows"]
    fitted = [row for row in rows if row["fitted"]]
    assert 0.15 < len(fitted) / len(rows) < 0.6
    assert {row["ranks"] for row in fitted} == {2, 4}
    assert distributed.HELD_OUT in {row["network"] for row in rows} - {r["network"] for r in fitted}


@pytest.mark.parametrize(
    "size, refused, missing",
    [
        ("cpu", "", ""),
        ("cpu", "network namespaces: no", ""),
        ("cpu", "", "want the library"),
        ("quick", "", ""),
        ("quick", "no", "none"),
        ("full", "", ""),
    ],
)
def test_page_of_what_was_permitted(made, tmp_path, size, refused, missing):
    result = made(size, refused, missing)
    page = EXPERIMENT.page(result, Figures(tmp_path / "page", "distributed"))
    text = "\n".join(
        part if isinstance(part, str) else part.markdown()
        for section in page.sections
        for part in section.parts
    )
    titles = [section.title for section in page.sections]
    assert ("The trainer" in titles) == ("One long row" in titles) == (not missing)
    assert ("Clusters, predicted" in titles) == (not missing)
    assert ("no simulated network on this machine" in text) == bool(refused)
    assert any("not run as ranks" in note for note in page.notes) == bool(missing)
    assert page.tried.keys() == {one.name for one in EXPERIMENT.criteria(result)}
    assert (tmp_path / "page/distributed-passing.svg").is_file()
    assert "nan" not in text and "None" not in text
    if refused:
        assert holds(result)["states: bytes at the longest length over the shortest"] is None
    if size == "quick":
        assert page.agrees.startswith("This size is too short")


def test_a_network_that_is_refused_is_told(made, capsys, monkeypatch, tmp_path):
    made("quick", "no namespaces", "no library")
    settings = Settings(EXPERIMENT, "quick", tmp_path / "told", threads=2)
    EXPERIMENT.run(settings, Progress("distributed"))
    told = capsys.readouterr().err
    assert "no simulated network here: no namespaces" in told
    assert "no training of several ranks: no library" in told


class Planned(Exception):
    """Ends a run when it has told its plan."""

    def plan(self, seconds):
        self.seconds = sum(seconds.values())
        raise self


@pytest.mark.parametrize("size", ["quick", "cpu", "full"])
def test_the_plan_is_within_the_time(monkeypatch, tmp_path, size):
    monkeypatch.setattr(distributed.network, "refused", lambda: "")
    monkeypatch.setattr(distributed.trainer, "missing", lambda: "")
    with pytest.raises(Planned) as told:
        EXPERIMENT.run(Settings(EXPERIMENT, size, tmp_path, threads=2), Planned())
    assert 0 < told.value.seconds <= 60 * EXPERIMENT.minutes[size]


# --- Ranks --------------------------------------------------------------------------


def test_collectives_over_loopback():
    cases = [
        {"op": op, "bytes": 4096}
        for op in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "ring")
    ]
    with Collectives() as collectives:
        asked = {
            "ranks": 2,
            "network": None,
            "cases": cases,
            "repeats": 2,
            "seconds": 0.01,
            "timeout_s": 60,
        }
        rows = collectives.ask(asked)["rows"]
        assert [(row["op"], row["bytes"], row["sent"]) for row in rows] == [
            (case["op"], 4096, None) for case in cases
        ]
        assert all(row["seconds"] > 0 for row in rows)
        with pytest.raises(ExperimentError, match="collectives: "):
            collectives.ask(asked | {"cases": [{"op": "nonsense", "bytes": 1}], "timeout_s": 5})


def test_the_smoke_size_needs_no_network_and_no_trainer(monkeypatch, tmp_path):
    monkeypatch.setattr(distributed.network, "refused", lambda: "not here")
    monkeypatch.setattr(distributed.trainer, "missing", lambda: "not here")
    settings = Settings(EXPERIMENT, "quick", tmp_path / "out", threads=2)
    measured = EXPERIMENT.run(settings, Progress("distributed", quiet=True))
    result = {"size": "quick", "machine": {}, "measured": measured}
    assert {row["network"] for row in measured["rows"]} == {"loopback"} and measured["passing"]
    assert set(holds(result).values()) == {None}
    assert (
        "not run as ranks: not here"
        in EXPERIMENT.page(result, Figures(tmp_path / "page", "distributed")).notes[-1]
    )


def lines(seconds, **more):
    return [{"step": i + 1, "elapsed_s": seconds * (i + 1), **more} for i in range(6)]


def test_figures_of_a_log():
    counted = [(2, 1000), (3, 1600), (5, 2800), (6, 9999)]
    found = trainer.figures_of(lines(0.5, exchange_s=0.1), counted)
    assert found == {"step_s": 0.5, "updates": 6, "sent": 600.0, "exchange_s": 0.1}
    assert trainer.figures_of(lines(0.5), [])["sent"] is None
    with pytest.raises(ExperimentError, match="want 4 updates or more, got 3"):
        trainer.figures_of(lines(0.5)[:3], [])


def test_what_no_trainer_is(tmp_path, monkeypatch):
    with pytest.raises(ExperimentError, match="mode: want one of"):
        trainer.train_ranks(tmp_path, 2, "pipeline", [])
    monkeypatch.setenv("TARN_TRAIN_LIBRARY", str(tmp_path / "absent.so"))
    assert trainer.missing() == "want the trainer's library absent.so, got no such file"


def test_a_rank_that_fails_ends_the_others(tmp_path, monkeypatch):
    """Whose words are passed on."""
    monkeypatch.setenv("TARN_TRAIN_LIBRARY", str(tmp_path / "absent.so"))
    with pytest.raises(ExperimentError, match="^ranks: "):
        trainer.train_ranks(tmp_path / "run", 1, "data", ["--nonsense"])


def test_the_text_is_always_the_same(tmp_path):
    for name in ("a", "b"):
        trainer.write_text(tmp_path / name, 2000)
    text = (tmp_path / "a").read_text()
    assert text == (tmp_path / "b").read_text() and len(text) >= 2000


@pytest.mark.parametrize("first, want", [(1e-5, 15), (0.1, 6), (0.5, 3), (1.2, 3), (1.3, 1)])
def test_repeats(first, want):
    assert repeats_of(first, 0.6, 15) == want
