"""Criteria and page of generation, on results written by hand."""

import pytest

from experiments.core import Figures
from experiments.core.report import verdict
from experiments.core.settings import Settings
from experiments.generation import EXPERIMENT

SHAPES = (("8 layers, 784 steps", 784), ("16 layers, 3,072 steps", 3072))


def batches(*images_s):
    """At 1, 64 and 256 images at once."""
    return [
        {"batch": batch, "seconds": batch / rate, "images_s": rate}
        for batch, rate in zip((1, 64, 256), images_s, strict=False)
    ]


def result(target="AVX3_SPR", share=0.9, speedup=1.8, cached=(4.0, 10.0, 10.0), longer=1.0):
    """`longer`: how much fewer images a second a cache gives at the longer shape."""
    timed, reading = [], []
    for shape, steps in SHAPES:
        for weights in ("f32", "bf16"):
            kept = [
                one / (longer if steps > 784 else 1.0)
                for one in (cached if weights == "f32" else cached[:2])
            ]
            for name, rows in (
                ("linear", batches(4.5, 50.0, 80.0)),
                ("cached", batches(*kept)),
                ("naive", batches(0.01 if steps > 784 else 0.1)),
            ):
                timed.append(
                    {
                        "shape": shape,
                        "generator": name,
                        "weights": weights,
                        "threads": 2,
                        "target": target,
                        "state_bytes": 100 * steps,
                        "batches": rows,
                    }
                )
        one = {"weight_bytes": 25_300_000, "step_us": 500.0, "read_gbs": 60.0, "share": share}
        reading.append(
            {"shape": shape, "threads": 2, "f32": one, "bf16": one, "speedup": speedup, "rounds": 3}
        )
    return {
        "size": "cpu",
        "settings": {"threads": 2},
        "machine": {},
        "measured": {"timed": timed, "reading": reading, "weights": "random"},
    }


def text_of(page):
    return "\n".join(
        part if isinstance(part, str) else part.markdown()
        for section in page.sections
        for part in section.parts
    )


@pytest.mark.parametrize(
    "target, wanted, named",
    [
        ("AVX3_SPR", ["at least 3x", "at least 10x"], "AVX-512"),
        ("AVX10_2", ["at least 3x", "at least 10x"], "AVX-512"),
        ("AVX2", ["at least 1.7x", "at least 4x"], "AVX2 or narrower"),
        ("NEON", ["at least 1.7x", "at least 4x"], "AVX2 or narrower"),
    ],
)
def test_goals_go_by_the_width_of_vectors(target, wanted, named):
    cached = [
        one for one in EXPERIMENT.criteria(result(target)) if "cached" in one.name and one.goal
    ]
    assert [one.wanted for one in cached] == wanted
    assert all(one.name.endswith(f"({named})") for one in cached)
    assert [one.got for one in cached] == ["8x", "8x"]  # 80 over 10


def test_the_claim_rests_on_the_papers_ratios():
    """317 and 4,000 times a recomputing softmax, and faster than a cached one;
    all else is a goal."""
    claims = [one for one in EXPERIMENT.criteria(result()) if one.claims]
    assert [one.wanted for one in claims] == [
        "at least 317x",
        "at least 1x",
        "at least 4000x",
        "at least 1x",
    ]
    assert [one.got for one in claims] == ["800x", "8x", "8000x", "8x"]
    assert all(one.wanted.split()[-1] in one.part.replace(",", "") for one in claims)
    assert verdict(EXPERIMENT.criteria(result(share=0.1, speedup=1.0))) == "**shown** (4 of 4)"
    slower = verdict(EXPERIMENT.criteria(result(cached=(40.0, 100.0, 100.0))))
    assert slower.startswith("**in part** (2 of 4); contradicted here: at least 1x a cached")
    # 2.5 times a cached softmax is faster, and misses a goal alone.
    assert verdict(EXPERIMENT.criteria(result(cached=(4.0, 32.0, 32.0)))) == "**shown** (4 of 4)"


@pytest.mark.parametrize(
    "changes, told",
    [
        (
            {"longer": 2.0},
            [
                "The result agrees with the paper: linear attention is the fastest",
                "is larger for the longer",
            ],
        ),
        (
            {"longer": 0.5},
            [
                "The result agrees with the paper: linear attention is the fastest",
                "is not larger for the longer",
            ],
        ),
        (
            {"cached": (40.0, 100.0, 100.0)},
            ["The result does not agree with the paper: softmax is faster", "0.8x"],
        ),
    ],
)
def test_the_sentence_goes_by_the_criteria(changes, told, tmp_path):
    page = EXPERIMENT.page(result(**changes), Figures(tmp_path, "generation"))
    assert all(one in page.agrees for one in told), page.agrees


def test_a_ratio_below_the_papers_is_named(tmp_path):
    of = result()
    for one in of["measured"]["timed"]:
        if one["generator"] == "naive" and one["shape"] == SHAPES[1][0]:
            one["batches"] = batches(0.1)
    page = EXPERIMENT.page(of, Figures(tmp_path, "generation"))
    assert page.agrees.startswith("The result agrees in part with the paper:")
    assert "best batch of each 800x (bound: at least 4000x)" in page.agrees
    assert "not shown: at least 4,000x a recomputing softmax at 16 layers" in verdict(
        EXPERIMENT.criteria(of)
    )


def test_no_published_column_is_shown_next_to_ours(tmp_path):
    text = text_of(EXPERIMENT.page(result(), Figures(tmp_path, "generation")))
    assert "| shape | against softmax | f32 | bf16 |" in text and "the paper's |" not in text
    assert "(GPU) |" not in text


def test_bfloat16_is_compared_where_the_cache_was_timed(tmp_path):
    text = text_of(EXPERIMENT.page(result(), Figures(tmp_path, "generation")))
    (row,) = [line for line in text.splitlines() if "784 steps (MNIST's) | cached, best" in line]
    assert [cell.strip() for cell in row.split("|")][3:5] == ["8x", "5x"]  # 50 of 64, not 80


def test_page_shows_what_the_paper_published(tmp_path):
    text = text_of(EXPERIMENT.page(result(), Figures(tmp_path, "generation")))
    for row in (
        "| stateful softmax | 7.56 | 7.4 | 10.4 |",
        "| linear | 142.8 | 5.5 | 7.3 |",
        "| softmax | 0.004 | 8651.4 | 300.1 |",
        "| linear | 17.85 | 45.1 | 61.3 |",
    ):
        assert row in text
    assert "batches end at 256" in text


def test_each_criterion_has_its_note(tmp_path):
    missed = result(share=0.5, speedup=1.2, cached=(40.0, 70.0, 70.0))
    page = EXPERIMENT.page(missed, Figures(tmp_path, "generation"))
    found = EXPERIMENT.criteria(missed)
    assert len([one for one in found if one.holds is False]) >= 6
    assert page.tried.keys() == {one.name for one in found}


class Planned(Exception):
    """Ends a run when it has told its plan."""

    def plan(self, seconds):
        self.seconds = sum(seconds.values())
        raise self


@pytest.mark.parametrize("size", ["quick", "cpu"])
def test_plan_is_within_the_time(tmp_path, size):
    with pytest.raises(Planned) as told:
        EXPERIMENT.run(Settings(EXPERIMENT, size, tmp_path, threads=2), Planned())
    assert told.value.seconds <= 60 * EXPERIMENT.minutes[size]
