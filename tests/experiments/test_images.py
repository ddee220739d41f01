"""images and completion: curves read at equal times, votes of neighbours,
criteria and pages from results, without any training."""

import ctypes
import gzip
import pathlib
import re

import numpy as np
import pytest

from experiments import colour, completion, completion_page, images, images_page
from experiments.core import (
    ExperimentError,
    Figures,
    Progress,
    Settings,
    TrainingRun,
    pack_images,
)
from experiments.core.files import write_json
from experiments.core.packing import unpacked
from experiments.core.report import verdict
from experiments.image_runs import apart as apart_of
from experiments.image_runs import equal_time


def evaluations(*rows):
    return [
        {"step": 10 * (i + 1), "elapsed_s": s, "cpu_s": 2 * s, "val_bits_per_dim": y}
        for i, (s, y) in enumerate(rows)
    ]


CURVES = {
    "linear": ((1, 6.0), (2, 4.0), (3, 3.0)),
    "softmax": ((2, 5.0), (4, 3.5), (6, 2.9)),
    "reformer": ((3, 5.5), (6, 5.0), (9, 4.0)),
}


def a_run(kind, seed=0, test=3.0):
    rows = CURVES[kind]
    return {
        "kind": kind,
        "seed": seed,
        "parameters": 100,
        "updates": 10 * len(rows),
        "seconds": rows[-1][0],
        "cpu_seconds": 2 * rows[-1][0],
        "seconds_an_update": rows[-1][0] / 10 / len(rows),
        "held_out": evaluations(*rows),
        "test": None
        if kind == "reformer"
        else {"images": 40, "bits_per_dim": test, "standard_error": 0.01, "seconds": 1.0},
    }


def colour_pair(seed, linear, softmax, later=None):
    """`later`: linear minus softmax at the common time; the test images' where it is None."""
    later = linear - softmax if later is None else later
    return {
        "seed": seed,
        "equal_updates": {
            "difference": linear - softmax,
            "standard_error": 0.01,
            "relative": linear / softmax - 1,
        },
        "equal_cpu_time": None,
        "equal_time": {
            "seconds": 199.0,
            "bits_per_dim": {"linear": 7 + later, "softmax": 7.0},
            "winner": "linear" if later < 0 else "softmax",
        },
    }


def images_result(
    size="cpu",
    kinds=("linear", "softmax"),
    relative=(0.02, 0.03),
    colour=((6.7, 6.8), (6.9, 7.0)),
    later=None,
):
    """`relative`: linear's gap by seed; `colour`: test bits/dim of linear, of softmax;
    `later`: what linear is above softmax at the common time."""
    runs = [a_run(kind, seed) for seed in range(len(relative)) for kind in kinds]
    pairs = []
    for seed, one in enumerate(relative if len(kinds) == 2 else ()):
        both = {run["kind"]: run for run in runs if run["seed"] == seed}
        pairs.append(
            {
                "seed": seed,
                "equal_updates": {"difference": 3 * one, "standard_error": 0.003, "relative": one},
                "equal_time": equal_time(both, "elapsed_s"),
                "equal_cpu_time": equal_time(both, "cpu_s"),
            }
        )
    large = [
        a_run(kind, seed, value)
        for kind, values in zip(("linear", "softmax"), colour or ())
        for seed, value in enumerate(values)
    ] + [a_run("reformer")]
    measured = {
        "seeds": [0, 1],
        "data": "fashion-mnist",
        "side": 14,
        "setup": {
            "pool": 2,
            "n_layers": 4,
            "d_model": 128,
            "updates": 2500,
            "batch": 16,
            "lr": "0.003",
            "norm": "pre",
            "activation": "gelu",
            "dropout": 0.0,
            "test_images": 2000,
            "eval_images": 500,
        },
        "runs": runs,
        "pairs": pairs,
        "whole": {
            "side": 28,
            "seconds": 90.0,
            "test_images": 500,
            "runs": [a_run(kind, seed) for seed in range(2) for kind in kinds],
            "pairs": [colour_pair(seed, 0.9, 0.8) for seed in range(2)] if len(kinds) == 2 else [],
        },
        "colour": {
            "data": "cifar10-lossless-4k",
            "side": 32,
            "seconds": 345.0,
            "test_images": 100,
            "runs": large,
            "pairs": [colour_pair(seed, *both, later) for seed, both in enumerate(zip(*colour))],
        }
        if colour
        else None,
    }
    return {"size": size, "measured": measured}


def test_the_winner_is_who_is_lower_when_the_first_has_finished():
    kinds = {"linear": a_run("linear"), "softmax": a_run("softmax")}
    assert equal_time(kinds, "elapsed_s") == {
        "seconds": 3,
        "bits_per_dim": {"linear": 3.0, "softmax": 4.25},
        "winner": "linear",
    }
    assert equal_time({"linear": kinds["linear"]}, "elapsed_s") is None
    no_clock = {
        kind: {**one, "held_out": [{**row, "cpu_s": None} for row in one["held_out"]]}
        for kind, one in kinds.items()
    }
    assert equal_time(no_clock, "cpu_s") is None


def test_the_gap_is_the_mean_over_the_seeds_of_softmaxs_share():
    apart = apart_of([3.3, 3.1], [3.0, 3.0])
    assert apart["difference"] == pytest.approx(0.2) and apart["relative"] == pytest.approx(1 / 15)
    for relative, holds in (((0.02, 0.05), True), ((0.02, 0.06), False), ((-0.1, -0.2), True)):
        gap, *_ = images_page.criteria(images_result(relative=relative))
        assert gap.holds is holds and "3.7 %" in gap.wanted


@pytest.mark.parametrize(
    "colour, later, holds, opposite, told",
    [
        (
            ((6.7, 6.8), (6.9, 7.0)),
            None,
            True,
            False,
            "linear attention is ahead after the same time, as in",
        ),
        # The worst of linear above the best of softmax: the pairs are judged one by one.
        (((6.7, 6.95), (6.9, 7.0)), None, True, False, "linear attention is ahead"),
        (
            ((6.7, 6.99), (6.9, 7.0)),
            None,
            False,
            False,
            "it is undecided which is ahead",
        ),  # one error
        (((6.7, 7.1), (6.9, 7.0)), None, False, False, "it is undecided which is ahead"),
        (((6.7, 6.8), (6.9, 7.0)), 0.1, False, False, "it is undecided which is ahead"),
        (((7.1, 7.2), (6.9, 7.0)), -0.1, False, False, "it is undecided which is ahead"),
        (
            ((7.1, 7.2), (6.9, 7.0)),
            None,
            False,
            True,
            "softmax is ahead after the same time, unlike",
        ),
    ],
)
def test_every_pair_must_be_lower_in_the_same_time(tmp_path, colour, later, holds, opposite, told):
    result = images_result(colour=colour, later=later)
    _, long, short, whole = images_page.criteria(result)
    assert (long.holds, long.opposite) == (holds, opposite)
    assert short.reported and "linear" in short.got
    assert whole.reported and "784 positions" in whole.name
    assert told in images_page.page(result, Figures(tmp_path, "images")).agrees


def test_colour_images_without_pairs_or_a_common_time_are_not_compared():
    result = images_result()
    result["measured"]["colour"]["pairs"][1]["equal_time"] = None
    assert images_page.criteria(result)[1].holds is None
    del result["measured"]["colour"]["pairs"]  # of a result from before there were any
    one = images_page.criteria(result)[1]
    assert one.holds is None and "compares no pairs" in one.got


def test_winners_are_counted(tmp_path):
    """One in one seed, the other in the next."""
    result = images_result(relative=(-0.01, -0.01, -0.01))
    for pair, winner in zip(result["measured"]["pairs"], ("softmax", "linear", "softmax")):
        pair["equal_time"]["winner"] = winner
    page = images_page.page(result, Figures(tmp_path, "images"))
    assert "softmax is ahead in 2 of 3 seeds at 196 positions" in page.agrees
    assert "softmax is ahead in 2 of 2 seeds at 784 positions" in page.agrees
    assert "Whole images, 784 positions" in [one.title for one in page.sections]
    del result["measured"]["whole"]  # of a result from before there were any
    assert "784" not in images_page.page(result, Figures(tmp_path, "images")).agrees
    assert len(images_page.criteria(result)) == 3
    assert "1.0 % below softmax's" in page.agrees and "linear 1.0 % below" in page.headline


@pytest.mark.parametrize("size", ["cpu", "full"])
def test_the_colour_images_are_told_by_size(tmp_path, size):
    result = images_result(size)
    result["measured"]["colour"]["data"] = "cifar10"
    page = images_page.page(result, Figures(tmp_path, "images"))
    text = told(page)
    assert ("The runs take minutes" in text) == (size == "cpu")
    assert "linear 3 and 3; softmax 6 and 6; reformer 9 seconds" in text
    assert any(
        "one of the five batches" in one and "last 100 images" in one for one in page.differences
    )
    assert any("MNIST at 28 x 28" in one for one in page.notes)


@pytest.mark.parametrize("colour", [True, False])
def test_a_result_of_lsh_attention_alone(tmp_path, colour):
    """It is shown with the colour images, and has no grey run."""
    result = images_result()
    measured = result["measured"]
    measured |= {"runs": [], "pairs": [], "setup": None, "whole": None}
    if colour:
        measured["colour"] |= {"runs": [a_run("reformer")], "pairs": []}
    else:
        measured["colour"] = None
    page = images_page.page(result, Figures(tmp_path, "images"))
    assert [one.holds for one in images_page.criteria(result)] == [None] * 3
    assert page.headline and page.agrees and page.differences and page.picture is None
    assert [one.title for one in page.sections] == ["Colour images, 3,072 positions"] * colour


def test_what_was_not_measured_is_not_passed():
    assert [one.holds for one in images_page.criteria(images_result("quick"))][:2] == [None, None]
    only = images_page.criteria(images_result(kinds=("linear",), colour=None))
    assert [one.holds for one in only] == [None] * 4


def told(page):
    return "\n".join(
        part if isinstance(part, str) else part.markdown()
        for section in page.sections
        for part in section.parts
    )


@pytest.mark.parametrize("kinds", [("linear", "softmax"), ("softmax",)])
def test_the_page_of_images(tmp_path, kinds):
    page = images_page.page(images_result(kinds=kinds), Figures(tmp_path, "images"))
    text = told(page)
    assert "Fashion-MNIST" in page.differences[0] and "14 x 14" in page.differences[0]
    assert "gelu, dropout 0.0" in page.differences[1]
    for kind in (*kinds, "reformer"):
        assert kind in text
    assert "are not comparable" in text and "3,072 positions" in page.sections[-1].title
    assert page.picture is not None and (tmp_path / page.picture.file).stat().st_size > 1000
    if len(kinds) == 2:
        assert "+2.0 %" in text and "linear 2.5 % above" in page.headline
    notes = images_page.page(
        images_result(kinds=kinds, colour=None), Figures(tmp_path, "images")
    ).notes
    assert notes[0].startswith("No colour images") and "only at equal time" in notes[1]


def test_what_was_tried_names_criteria(tmp_path):
    result = images_result(relative=(0.06, 0.06))
    names = {one.name for one in images_page.criteria(result)}
    page = images_page.page(result, Figures(tmp_path, "images"))
    assert page.tried.keys() <= names and images_page.criteria(result)[0].name in page.tried
    result = completion_result(alike=0.1)
    names = {one.name for one in completion_page.criteria(result)}
    page = completion_page.page(result, Figures(tmp_path, "completion"))
    assert page.tried and page.tried.keys() <= names


def _fake(monkeypatch, measured):
    """images without any training: finished runs, each measured once."""

    def run_of(settings, progress, kind, seed):
        with progress.part(images.part_of(kind, seed)):
            progress.reused(100.0, 200.0)
        folder = settings.out / "runs" / kind
        write_json(
            folder / "checkpoint" / "train.json",
            {
                "model": {"model": {"n_layers": 2, "d_model": 32}, "norm": {"place": "pre"}},
                "options": {"lr": "0.003", "batch": "8", "eval_windows": "32"},
            },
        )
        return TrainingRun(folder, [{"step": 1}], 100.0, 200.0)

    def test(settings, run, file, pool, count):
        measured.append(run.folder.name)
        return {
            "images": 2,
            "bits_per_dim": 3.0,
            "standard_error": 0.1,
            "seconds": 1.0,
            "bits_per_dim_of_images": [2.9, 3.1],
        }

    monkeypatch.setattr(images, "_run_of", run_of)
    monkeypatch.setattr(images, "figures_of", lambda settings, run: {"held_out": []})
    monkeypatch.setattr(images, "test", test)
    monkeypatch.setattr(images.whole_images, "run", lambda *_: None)


@pytest.fixture
def fake_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("TARN_DATA", str(tmp_path))
    monkeypatch.setattr("experiments.core.data.ROOT", tmp_path / "root")
    folder = tmp_path / "mnist"
    folder.mkdir()
    for stem in (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ):
        (folder / stem).write_bytes(b"\0\0\x08\x01\0\0\0\x01\7")
    return lambda experiment, *kinds: Settings(
        experiment,
        "quick",
        tmp_path / "out" / experiment.name,
        kinds,
        threads=1,
        data_paths={"mnist": folder},
    )


def test_one_kind_first_then_both(monkeypatch, fake_settings):
    measured = []
    _fake(monkeypatch, measured)
    for kinds in (("linear",), (), ()):
        found = images.run(fake_settings(images.EXPERIMENT, *kinds), Progress("images", quiet=True))
        assert {run["kind"] for run in found["runs"]} == set(kinds or ("linear", "softmax"))
        assert len(found["pairs"]) == (0 if kinds else 1) and found["colour"] is None
    assert measured == ["linear", "softmax"]


def test_time_of_the_models_is_not_counted_twice(monkeypatch, fake_settings):
    _fake(monkeypatch, [])
    for name in ("_completions", "_judged", "_from_nothing", "_lower_half"):
        monkeypatch.setattr(completion, name, lambda *arguments: {})
    progress = Progress("completion", quiet=True)
    completion.run(fake_settings(completion.EXPERIMENT), progress)
    assert progress.reused_s == progress.reused_cpu_s == 0


def test_colour_images_are_split_before_anything_is_learned(fake_settings, tmp_path):
    """The last ones judge; what is no whole number of images is refused."""
    folder = tmp_path / "cifar10"
    folder.mkdir()
    record = 3073
    data = bytes(i % 251 for i in range(40 * record))
    (folder / "data_batch_1.bin").write_bytes(data)
    settings = fake_settings(images.EXPERIMENT)
    assert colour.found(settings) == "cifar10"
    learned, judging = colour._split(settings, "cifar10")
    assert learned.read_bytes() + judging.read_bytes() == data
    assert judging.stat().st_size == 8 * record
    (folder / "data_batch_1.bin").write_bytes(data[:-1])
    with pytest.raises(ExperimentError, match="whole images"):
        colour._split(settings, "cifar10")
    assert set(colour.planned(settings)) >= {"colour: linear, seed 0", "colour: reformer, seed 0"}


# --- Completion ---------------------------------------------------------------


def completion_result(different=0, alike=0.8, size="cpu"):
    random = np.random.default_rng(0)
    true = random.integers(0, 256, (3, 6, 6), np.uint8)
    drawn = np.repeat(true[:, None], 2, axis=1)
    one = {
        "updates": 30,
        "completed": {
            "true": pack_images(true),
            "drawn": pack_images(drawn),
            "pixels": 18,
            "checked": 3,
            "given_bytes": 108,
            "given_bytes_different": different,
            "stepping_is_prefill": different == 0,
            "seconds": 1.0,
            "images_a_second": 6.0,
        },
        "judged": {"images": 0}
        if alike is None
        else {
            "images": 100,
            "training_images": 10,
            "samples": alike,
            "true": 0.9,
            "blank": 0.1,
            "another": 0.02,
        },
        "from_nothing": {"drawn": pack_images(true), "seconds": 1.0, "images_a_second": 3.0},
        "lower_half": {"images": 20, "bits_per_dim": 4.5, "standard_error": 0.1},
        "whole": {"images": 20, "bits_per_dim": 4.0, "standard_error": 0.1},
    }
    return {
        "size": size,
        "measured": {
            "seeds": [0],
            "data": "mnist",
            "side": 6,
            "chosen": [3, 1, 2],
            "labels": [0, 1, 2],
            "samples": 2,
            "kinds": {"linear": one, "softmax": one},
        },
    }


def test_completions_must_be_exact_and_alike():
    criteria = completion_page.criteria
    assert [one.holds for one in criteria(completion_result())] == [True] * 5
    wrong = criteria(completion_result(different=1, alike=0.3))
    assert [one.holds for one in wrong] == [False, False, True, False, True]
    assert not wrong[3].opposite and "at least 50 %" in wrong[3].wanted  # midway of 10 and 90
    assert criteria(completion_result(alike=0.1))[3].opposite  # no better than blank halves
    quick = criteria(completion_result(size="quick"))
    assert [one.holds for one in quick][3:] == [None, None]
    unread = criteria(completion_result(alike=None))
    assert [one.holds for one in unread][3:] == [None, None]


def test_only_linears_completions_judge_the_claim():
    """What is exact by construction is a goal; bits/dim and softmax are reported."""
    found = completion_page.criteria(completion_result(different=1))
    assert [one.goal for one in found] == [True, True, False, False, False]
    assert [one.reported for one in found] == [False, False, True, False, True]
    assert all(one.wanted == "reported" for one in found if one.reported)
    assert verdict(found) == "**shown** (1 of 1)"
    result = completion_result(alike=0.1)
    assert verdict(completion_page.criteria(result)).startswith("**not reached** (0 of 1)")
    result["measured"]["kinds"].pop("linear")
    assert verdict(completion_page.criteria(result)) == "not measured"
    assert "nothing" not in completion.EXPERIMENT.claim


@pytest.mark.parametrize(
    ("alike", "size", "told"),
    [
        (
            0.53,
            "cpu",
            "53 % of the halves drawn with linear attention are classified as their class (true "
            "halves 90 %): about half are legible; the true lower half takes",
        ),
        (0.1, "cpu", ": few are legible"),
        (0.9, "cpu", ": nearly all are legible"),
        (0.53, "quick", "the drawn halves were not classified; "),
        (None, "cpu", "the drawn halves were not classified; "),
    ],
)
def test_the_headline_says_how_many_are_legible(alike, size, told, tmp_path):
    result = completion_result(alike=alike, size=size)
    assert told in completion_page.page(result, Figures(tmp_path, "completion")).headline


@pytest.mark.parametrize("size", ["quick", "cpu", "full"])
def test_the_model_that_completes_is_told(size, tmp_path):
    """As `tarn train` has it: the presets give what experiments/images.py does not."""
    page = completion_page.page(completion_result(size=size), Figures(tmp_path, "completion"))
    (told,) = [one for one in page.differences if one.startswith("models")]
    setup = images.setup_of(Settings(completion.EXPERIMENT, size, tmp_path))
    sources = pathlib.Path(__file__).resolve().parents[2] / "src/train/options/presets.cc"
    preset = sources.read_text("utf-8").split(f'{{"{setup.preset}",')[1].split("}}},")[0]
    has = dict(re.findall(r'\{"(\w+)", "([^"]*)"', preset))
    has |= {name.replace("-", "_"): str(value) for name, value in setup.changes.items()}
    activation = {"gelu": "GELU", "relu": "ReLU"}[has.get("activation", "gelu")]
    dropout = f"dropout {has['dropout']}" if "dropout" in has else "no dropout"
    assert (
        f"{has['n_layers']} layers, width {has['d_model']}, {has['norm']}-norm, {activation}, "
        f"{dropout}"
    ) in told
    assert "250 epochs" in told


def test_halves_of_another_class_are_of_another_class():
    halves, labels = np.arange(5)[:, None], np.array([1, 1, 2, 1, 2])
    assert completion._of_another_class(halves, labels)[:, 0].tolist() == [2, 2, 3, 4, 0]
    assert completion._of_another_class(halves[:2], labels[:2])[:, 0].tolist() == [0, 1]


def test_the_page_of_completion(tmp_path):
    page = completion_page.page(completion_result(), Figures(tmp_path, "completion"))
    pictures = sorted(path.name for path in tmp_path.iterdir())
    assert pictures == [
        "completion-completed-linear.png",
        "completion-completed-softmax.png",
        "completion-drawn-linear.png",
        "completion-drawn-softmax.png",
    ]
    assert "Every given pixel is unchanged" in page.agrees
    assert "4.500" in page.headline and "given bytes" not in page.headline
    (section,) = [one for one in page.sections if one.title == "New images"]
    assert "No criterion evaluates these images" in section.parts[0]
    changed = completion_page.page(completion_result(different=1), Figures(tmp_path, "completion"))
    assert "2 given bytes changed" in changed.headline


def test_a_difference_is_told(tmp_path):
    result = completion_result()
    page = completion_page.page(result, Figures(tmp_path, "completion"))
    assert "sample is the same" in page.agrees and "first 3 images of each" in page.agrees
    result["measured"]["kinds"]["softmax"]["completed"] = {
        **result["measured"]["kinds"]["softmax"]["completed"],
        "stepping_is_prefill": False,
    }
    page = completion_page.page(result, Figures(tmp_path, "completion"))
    assert "**not** always the same" in page.agrees and "differ" in page.headline


def _zstd(content):
    """Packed by the library itself."""
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = ctypes.c_size_t
    room = ctypes.create_string_buffer(len(content) + 1000)
    size = library.ZSTD_compress(
        room, ctypes.c_size_t(len(room)), content, ctypes.c_size_t(len(content)), 3
    )
    return room.raw[:size]


def test_labels_and_the_images_chosen_by_them(tmp_path):
    labels = [3, 1, 3, 0, 1, 2]
    data = b"\0\0\x08\x01" + len(labels).to_bytes(4, "big") + bytes(labels)
    plain, packed = tmp_path / "plain", tmp_path / "packed.gz"
    plain.write_bytes(data)
    packed.write_bytes(gzip.compress(data))
    assert completion._labels(plain) == completion._labels(packed) == labels
    assert completion._one_a_class(labels, 3) == [3, 1, 5]
    assert completion._one_a_class([], 3) == [0, 1, 2]
    small = tmp_path / "small.zst"
    small.write_bytes(_zstd(data))
    assert completion._labels(small) == labels
    plain.write_bytes(data[:-1])
    with pytest.raises(ExperimentError, match="labels"):
        completion._labels(plain)


def test_packed_files_are_bounded(tmp_path):
    """What unpacks to more than expected, is cut short, or continues after its end."""
    content, plain = b"tarn" * 250_000, tmp_path / "plain"
    plain.write_bytes(content)
    gz, zst = tmp_path / "x.gz", tmp_path / "x.zst"
    gz.write_bytes(gzip.compress(content))
    zst.write_bytes(_zstd(content))
    for path in (plain, gz, zst):
        assert unpacked(path, 1_000_000) == content
        for most in (999_999, 10):
            with pytest.raises(ExperimentError, match="x|plain"):
                unpacked(path, most)
    for path in (gz, zst):
        whole = path.read_bytes()
        for broken in (whole[:-3], whole + b"more", b"", b"x" * 100):
            path.write_bytes(broken)
            with pytest.raises(ExperimentError) as caught:
                unpacked(path, 1_000_000)
            assert caught.value.code == 3


def test_neighbours_vote_by_distance():
    known = np.array([[0, 0], [1, 0], [0, 1], [9, 9], [9, 8], [8, 9], [200, 200]], np.uint8)
    labels = np.array([4, 4, 4, 7, 7, 7, 1])
    points = np.array([[2, 2], [7, 7]], np.uint8)
    assert completion._voted(points, known, labels).tolist() == [4, 7]
