"""images and completion: curves read at equal times, votes of neighbours,
criteria and pages from results, without any training."""

import ctypes
import gzip

import numpy as np
import pytest

from experiments import completion, images
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


def looks(*rows):
    return [{"step": 10 * (i + 1), "elapsed_s": s, "cpu_s": 2 * s, "val_bits_per_dim": y}
            for i, (s, y) in enumerate(rows)]


def a_kind(*rows):
    held_out = looks(*rows)
    return {"parameters": 100, "updates": 10 * len(rows), "seconds": rows[-1][0],
            "cpu_seconds": 2 * rows[-1][0], "seconds_an_update": rows[-1][0] / 10 / len(rows),
            "training": [{"step": 10, "elapsed_s": 1.0, "cpu_s": 2.0, "bits_per_dim": 5.0}],
            "held_out": held_out,
            "test": {"images": 40, "bits_per_dim": rows[-1][1], "standard_error": 0.01,
                     "seconds": 1.0}}


def images_result(size="cpu", kinds=("linear", "softmax"), difference=0.02):
    both = {"linear": a_kind((1, 6.0), (2, 4.0), (3, 3.0)),
            "softmax": a_kind((2, 5.0), (4, 3.5), (6, 2.9))}
    chosen = {kind: both[kind] for kind in kinds}
    two = len(kinds) == 2
    measured = {
        "seeds": [0], "data": "fashion-mnist", "side": 14,
        "setup": {"pool": 2, "n_layers": 4, "d_model": 128, "updates": 2500, "batch": 16,
                  "lr": "0.003", "norm": "pre", "test_images": 2000, "eval_images": 500},
        "kinds": chosen,
        "equal_updates": {"difference": difference, "standard_error": 0.003} if two else None,
        "equal_time": images.equal_time(chosen, "elapsed_s"),
        "equal_cpu_time": images.equal_time(chosen, "cpu_s"),
        "colour": {"data": "cifar10-lossless-4k", "pool": 4, "side": 8, "kinds": chosen},
    }
    return {"size": size, "measured": measured}


def test_a_curve_is_read_between_its_looks():
    curve = looks((1, 6.0), (2, 4.0), (4, 3.0))
    assert images.at_time(curve, 1, "elapsed_s") == 6.0
    assert images.at_time(curve, 1.5, "elapsed_s") == 5.0
    assert images.at_time(curve, 3, "elapsed_s") == 3.5
    assert images.at_time(curve, 8, "cpu_s") == 3.0
    assert images.at_time(curve, 0.5, "elapsed_s") is None
    assert images.at_time(curve, 4.5, "elapsed_s") is None
    assert images.at_time([], 1, "elapsed_s") is None


def test_the_winner_is_who_is_lower_when_the_first_has_finished():
    kinds = {"linear": a_kind((1, 6.0), (2, 4.0), (3, 3.0)),
             "softmax": a_kind((2, 5.0), (4, 3.5), (6, 2.9))}
    equal = images.equal_time(kinds, "elapsed_s")
    assert equal == {"seconds": 3, "bits_per_dim": {"linear": 3.0, "softmax": 4.25},
                     "winner": "linear"}
    assert images.equal_time({"linear": kinds["linear"]}, "elapsed_s") is None
    no_clock = {kind: {**one, "held_out": [{**row, "cpu_s": None} for row in one["held_out"]]}
                for kind, one in kinds.items()}
    assert images.equal_time(no_clock, "cpu_s") is None


@pytest.mark.parametrize(("difference", "holds"), [(0.02, True), (-0.02, True), (0.051, False),
                                                   (-0.051, False)])
def test_the_gap_is_judged_either_way(difference, holds):
    gap, winner = images.criteria(images_result(difference=difference))
    assert gap.holds is holds and winner.holds is True and "linear" in winner.got


def test_what_was_not_measured_is_not_passed():
    assert images.criteria(images_result("quick"))[0].holds is None
    assert [one.holds for one in images.criteria(images_result(kinds=("linear",)))] == [None, None]


@pytest.mark.parametrize("kinds", [("linear", "softmax"), ("softmax",)])
def test_the_page_of_images(tmp_path, kinds):
    page = images.page(images_result(kinds=kinds), Figures(tmp_path, "images"))
    text = "\n".join(part if isinstance(part, str) else part.markdown()
                     for section in page.sections for part in section.parts)
    assert "Fashion-MNIST" in page.differences[0] and "14 x 14" in page.differences[0]
    for kind in kinds:
        assert kind in text
    assert "not in any way" not in text and "no way comparable" in text
    assert page.picture is not None and (tmp_path / page.picture.file).stat().st_size > 1000
    if len(kinds) == 2:
        assert "+0.0200" in text and "**linear** is ahead" in text


def told(page):
    return "\n".join(part if isinstance(part, str) else part.markdown()
                     for section in page.sections for part in section.parts)


def test_what_chance_may_do_names_no_one_ahead(tmp_path):
    """0.003 of 2,000 images is 0.006 of 500: two of these are level."""
    near = images_result(difference=0.005)
    near["measured"]["equal_time"]["bits_per_dim"] = {"linear": 3.0, "softmax": 3.011}
    page = images.page(near, Figures(tmp_path, "images"))
    assert "level at equal time" in page.headline and "One seed" in told(page)
    assert told(page).count("level within two standard errors") == 2  # CPU time is far apart
    assert "level" in images.criteria(near)[1].got and "linear" in images.criteria(near)[1].got
    near["measured"]["equal_time"]["bits_per_dim"]["softmax"] = 3.013
    page = images.page(near, Figures(tmp_path, "images"))
    assert "ahead at equal time: linear" in page.headline


def test_what_was_tried_names_criteria(tmp_path):
    result = images_result(difference=0.06)
    names = {one.name for one in images.criteria(result)}
    page = images.page(result, Figures(tmp_path, "images"))
    assert page.tried.keys() <= names and images.criteria(result)[0].name in page.tried
    result = completion_result(alike=0.1)
    names = {one.name for one in completion.criteria(result)}
    page = completion.page(result, Figures(tmp_path, "completion"))
    assert page.tried and page.tried.keys() <= names


def _fake(monkeypatch, measured):
    """images without any training: two finished runs, each measured once."""
    def models(settings, progress):
        runs = {}
        for kind in settings.attentions:
            with progress.part(kind):
                progress.reused(100.0, 200.0)
            folder = settings.out / "runs" / kind
            write_json(folder / "checkpoint" / "train.json", {
                "model": {"model": {"n_layers": 2, "d_model": 32}, "norm": {"place": "pre"}},
                "options": {"lr": "0.003", "batch": "8", "eval_windows": "32"}})
            runs[kind] = TrainingRun(folder, [{"step": 1}], 100.0, 200.0)
        return runs

    def test(settings, run, file, setup):
        measured.append(run.folder.name)
        return {"images": 2, "bits_per_dim": 3.0, "standard_error": 0.1, "seconds": 1.0,
                "bits_per_dim_of_images": [2.9, 3.1]}

    monkeypatch.setattr(images, "models", models)
    monkeypatch.setattr(images, "_figures", lambda settings, run: {"held_out": []})
    monkeypatch.setattr(images, "_test", test)


@pytest.fixture
def fake_settings(tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    for stem in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                 "t10k-labels-idx1-ubyte"):
        (folder / stem).write_bytes(b"\0\0\x08\x01\0\0\0\x01\7")
    return lambda experiment, *kinds: Settings(
        experiment, "quick", tmp_path / "out" / experiment.name, kinds, threads=1,
        data_paths={"mnist": folder})


def test_one_kind_first_then_both(monkeypatch, fake_settings):
    measured = []
    _fake(monkeypatch, measured)
    for kinds in (("linear",), (), ()):
        found = images.run(fake_settings(images.EXPERIMENT, *kinds),
                           Progress("images", quiet=True))
        assert set(found["kinds"]) == set(kinds or ("linear", "softmax"))
    assert measured == ["linear", "softmax"]


def test_time_of_the_models_is_not_counted_twice(monkeypatch, fake_settings):
    _fake(monkeypatch, [])
    for name in ("_completions", "_classes", "_from_nothing", "_lower_half"):
        monkeypatch.setattr(completion, name, lambda *arguments: {})
    progress = Progress("completion", quiet=True)
    completion.run(fake_settings(completion.EXPERIMENT), progress)
    assert progress.reused_s == progress.reused_cpu_s == 0


# --- Completion ---------------------------------------------------------------


def completion_result(different=0, alike=0.8, size="cpu"):
    random = np.random.default_rng(0)
    true = random.integers(0, 256, (3, 6, 6), np.uint8)
    drawn = np.repeat(true[:, None], 2, axis=1)
    one = {
        "updates": 30,
        "completed": {"true": pack_images(true), "drawn": pack_images(drawn), "pixels": 18,
                      "checked": 3, "given_bytes": 108, "given_bytes_different": different,
                      "stepping_is_prefill": different == 0, "seconds": 1.0,
                      "images_a_second": 6.0},
        "classes": {"samples_alike": alike, "true_alike": 1.0, "training_images": 10},
        "from_nothing": {"drawn": pack_images(true), "seconds": 1.0, "images_a_second": 3.0},
        "lower_half": {"images": 20, "bits_per_dim": 4.5, "standard_error": 0.1},
        "whole": {"images": 20, "bits_per_dim": 4.0, "standard_error": 0.1},
    }
    return {"size": size, "measured": {
        "seeds": [0], "data": "mnist", "side": 6, "chosen": [3, 1, 2], "labels": [0, 1, 2],
        "samples": 2, "kinds": {"linear": one, "softmax": one}}}


def test_completions_must_be_exact_and_alike():
    assert [one.holds for one in completion.criteria(completion_result())] == [True] * 5
    wrong = completion.criteria(completion_result(different=1, alike=0.1))
    assert [one.holds for one in wrong] == [False, False, True, False, False]
    quick = completion.criteria(completion_result(size="quick"))
    assert [one.holds for one in quick][3:] == [None, None]
    unread = completion.criteria(completion_result(alike=None))
    assert [one.holds for one in unread][3:] == [None, None]


def test_the_page_of_completion(tmp_path):
    page = completion.page(completion_result(), Figures(tmp_path, "completion"))
    pictures = sorted(path.name for path in tmp_path.iterdir())
    assert pictures == ["completion-completed-linear.png", "completion-completed-softmax.png",
                        "completion-drawn-linear.png", "completion-drawn-softmax.png"]
    assert "every given pixel comes back as it was" in page.headline
    assert "4.500" in page.headline


def test_a_difference_is_told(tmp_path):
    result = completion_result()
    page = completion.page(result, Figures(tmp_path, "completion"))
    assert "sample is the same" in page.agrees and "first 3 images of each" in page.agrees
    result["measured"]["kinds"]["softmax"]["completed"] = {
        **result["measured"]["kinds"]["softmax"]["completed"], "stepping_is_prefill": False}
    page = completion.page(result, Figures(tmp_path, "completion"))
    assert "**not** always the same" in page.agrees and "differ" in page.headline


def _zstd(content):
    """Packed by the library itself."""
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = ctypes.c_size_t
    room = ctypes.create_string_buffer(len(content) + 1000)
    size = library.ZSTD_compress(room, ctypes.c_size_t(len(room)), content,
                                 ctypes.c_size_t(len(content)), 3)
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
    """What unpacks to more than is wanted, is cut short, or goes on behind its end."""
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
