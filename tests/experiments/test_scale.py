"""The scale that a claim is told with."""

import json
import pathlib

import pytest

from experiments.core import scale

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "paper"


def run(seed, seconds=90.0, updates=1000, parameters=398_923):
    return {"seed": seed, "seconds": seconds, "updates": updates, "parameters": parameters}


def test_trainings_in_words():
    assert scale.trainings([run(0), run(1, 120.0, 2000)]) == (
        "0.399 million parameters, 1,000 to 2,000 updates, 1.5 to 2 minutes per run, 2 seeds"
    )
    assert scale.trainings([run(0, 9.0)], ()) == "1,000 updates, 9 seconds per run, 1 seed"
    assert scale.trainings([]) == ""


def test_counts_are_of_one_size():
    assert scale.counted({"size": "cpu"}, "copy") == (398_923,)
    assert scale.counted({"size": "quick"}, "copy") == ()
    images = json.loads((RESULTS / "results" / "images.json").read_text())["measured"]["runs"]
    assert {one["parameters"] for one in images} == {*scale.COUNTED["completion"]}
    same = json.loads((RESULTS / "results" / "same_start.json").read_text())["measured"]
    assert same["parameters"] in scale.COUNTED["copy"]


@pytest.mark.parametrize(
    "name",
    [
        "scaling",
        "copy",
        "images",
        "generation",
        "completion",
        "speech",
        "long",
        "maps",
        "recall",
        "earlier",
        "same_start",
        "distributed",
        "families",
    ],
)
def test_every_page_names_its_scale(name):
    page = (RESULTS / f"{name}.md").read_text()
    told = page[page.index("**Scale here**") :].split("\n")[0]
    assert len(told) > 40
    if name not in ("scaling", "generation"):
        assert "million parameters" in told
