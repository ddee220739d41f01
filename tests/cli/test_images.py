"""Image models from the command line: drawn, completed, scored."""

import gzip
import json
import os
import pathlib
import signal
import subprocess
import time

import numpy as np
import plain_images
import pytest

HEIGHT, WIDTH = 6, 4


@pytest.fixture(scope="module")
def model(tmp_path_factory, tarn_program):
    folder = tmp_path_factory.mktemp("image-model")
    program = pathlib.Path(tarn_program).parent / "write_random_model"
    subprocess.run([program, folder, "image"], check=True)
    return folder


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (5, HEIGHT, WIDTH), np.uint8)


@pytest.fixture
def image_file(images, tmp_path):
    path = tmp_path / "images-idx3-ubyte"
    path.write_bytes(plain_images.idx_bytes(images))
    return path


def figures(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def drawn(path):
    return plain_images.read_idx(path.read_bytes())


def test_bits_are_those_of_the_definition(tarn, model, images, image_file):
    want = plain_images.bits_per_dim(model, images)
    got = figures(tarn("eval", model, image_file, "--json"))
    assert list(got) == ["images", "bytes_scored", "bits_per_dim", "standard_error", "seconds"]
    assert got["images"] == 5 and got["bytes_scored"] == 5 * (HEIGHT * WIDTH - 1)
    assert got["bits_per_dim"] == pytest.approx(want.mean(), rel=2e-4)
    each = figures(tarn("eval", model, image_file, "--json", "--per-image"))
    np.testing.assert_allclose(each["bits_per_dim_of_images"], want, rtol=5e-4)
    assert np.mean(each["bits_per_dim_of_images"]) == pytest.approx(got["bits_per_dim"])
    assert got["standard_error"] == pytest.approx(want.std(ddof=1) / 5**0.5, rel=1e-2)
    want = plain_images.bits_per_dim(model, images[1:4], start=12)
    got = figures(tarn("eval", model, image_file, "--pixels", 12, "--index", "1-3", "--json"))
    assert got["images"] == 3 and got["bytes_scored"] == 3 * 12
    assert got["bits_per_dim"] == pytest.approx(want.mean(), rel=2e-4)


def test_plain_figures_and_threads(tarn, model, image_file):
    one = figures(tarn("eval", model, image_file, "--json", "--threads", 1))
    two = figures(tarn("eval", model, image_file, "--json", "--threads", 2))
    del one["seconds"], two["seconds"]
    assert one == two
    lines = tarn("eval", model, image_file).stdout.decode().splitlines()
    plain = {name: float(value) for name, value in map(str.split, lines)}
    del plain["seconds"]
    assert plain == one


def test_packed_and_larger_files_are_read(tarn, model, images, tmp_path):
    large = np.repeat(np.repeat(images, 2, 1), 2, 2)  # means of 2 x 2 give them back
    path = tmp_path / "large.gz"
    path.write_bytes(gzip.compress(plain_images.idx_bytes(large)))
    done = tarn("eval", model, path)
    assert done.returncode == 3 and done.stdout == b""
    assert b"6 x 4" in done.stderr and b"12 x 8" in done.stderr and b"--pool 2" in done.stderr
    got = figures(tarn("eval", model, path, "--pool", 2, "--json"))
    want = plain_images.bits_per_dim(model, images).mean()
    assert got["bits_per_dim"] == pytest.approx(want, rel=2e-4)


def test_images_from_nothing(tarn, model, tmp_path):
    def draw(name, *flags):
        return tarn("draw", model, "--out", tmp_path / name, *flags)

    got = figures(draw("a", "--count", 7, "--seed", 3, "--json"))
    assert got["images"] == 7 and got["seed"] == 3 and got["state_bytes_per_token"] == 0
    a = drawn(tmp_path / "a")
    assert a.shape == (7, HEIGHT, WIDTH) and (a[:, 0, 0] == 0).all()
    assert len({image.tobytes() for image in a}) == 7
    for name, *flags in (("b", "--batch", 1), ("c", "--batch", 3, "--threads", 2)):
        done = draw(name, "--count", 7, "--seed", 3, *flags)
        assert done.returncode == 0 and done.stdout == b"", done.stderr
        assert b"7, " in done.stderr and b"images/s" in done.stderr
        assert (tmp_path / name).read_bytes() == (tmp_path / "a").read_bytes()
    assert draw("d", "--count", 2, "--seed", 3, "--first", 255).returncode == 0
    assert (drawn(tmp_path / "d")[:, 0, 0] == 255).all()
    assert draw("e", "--count", 7, "--seed", 4).returncode == 0
    assert not np.array_equal(drawn(tmp_path / "e"), a)
    piped = tarn("draw", model, "--out", "-", "--count", 7, "--seed", 3)
    assert piped.stdout == (tmp_path / "a").read_bytes()
    assert draw("f", "--count", 0).returncode == 0
    assert drawn(tmp_path / "f").shape == (0, HEIGHT, WIDTH)


def test_given_pixels_are_copied_exactly(tarn, model, images, image_file, tmp_path):
    out = tmp_path / "out.idx"

    def complete(*flags):
        done = tarn("draw", model, "--given", image_file, "--out", out, "--seed", 1, *flags)
        assert done.returncode == 0, done.stderr
        return drawn(out).reshape(-1, HEIGHT * WIDTH)

    got = complete("--index", "1-3", "--pixels", 9, "--samples", 4)
    assert got.shape == (12, HEIGHT * WIDTH)
    given = np.repeat(images[1:4].reshape(3, -1)[:, :9], 4, axis=0)
    assert (got[:, :9] == given).all()
    assert len({image.tobytes() for image in got}) == 12
    np.testing.assert_array_equal(
        complete("--index", "1-3", "--pixels", 9, "--samples", 4, "--batch", 5), got
    )
    half = complete()  # the first image, its upper half
    assert half.shape == (1, HEIGHT * WIDTH)
    assert (half[0, :12] == images[0].reshape(-1)[:12]).all()
    whole = complete("--index", 4, "--pixels", HEIGHT * WIDTH)
    assert (whole[0] == images[4].reshape(-1)).all()


def test_options_that_do_not_fit_are_refused(tarn, model, models, image_file, tmp_path):
    out, text = tmp_path / "out.idx", tmp_path / "text"
    text.write_bytes(b"some text")
    given = ("draw", model, "--out", out, "--given", image_file)
    wrong = (
        (("draw", model), b"--out"),
        (("draw", model, "--out", "-", "--json"), b"--out"),
        (("draw", model, "--out", out, "--prompt", "a"), b"--prompt"),
        (("draw", model, "--out", out, "--beam", 2), b"--beam"),
        (("draw", model, "--out", out, "--pixels", 2), b"--pixels"),
        (("draw", model, "--out", out, "--temperature", 101), b"temperature"),
        (("draw", model, "--out", out, "--first", 256), b"--first"),
        (("draw", model, "--out", out, "--count", 2**31 - 1), b"--count"),
        ((*given, "--samples", 2**31 - 1), b"--samples"),
        ((*given, "--count", 2), b"--count"),
        ((*given, "--index", 5), b"--index"),
        ((*given, "--index", "3-2"), b"--index"),
        ((*given, "--index", "1-"), b"--index"),
        ((*given, "--index", "x"), b"--index"),
        ((*given, "--pixels", 25), b"--pixels"),
        (("eval", model, image_file, "--per-token"), b"--per-token"),
        (("eval", model, image_file, "--pixels", 24), b"--pixels"),
        (("eval", models / "linear", text, "--pixels", 2), b"--pixels"),
    )
    for arguments, name in wrong:
        done = tarn(*arguments)
        assert done.returncode == 2 and done.stdout == b"", arguments
        assert name in done.stderr.splitlines()[0], done.stderr
    assert not out.exists()


def test_a_model_of_text_draws_nothing(tarn, models, tmp_path):
    done = tarn("draw", models / "linear", "--out", tmp_path / "out.idx")
    assert done.returncode == 3 and done.stdout == b"" and list(tmp_path.iterdir()) == []
    assert b"image model" in done.stderr and b"tarn generate" in done.stderr


def test_generate_points_to_draw(tarn, model):
    done = tarn("generate", model, "--seed", 4)
    assert done.returncode == 3 and done.stdout == b""
    assert b"image model (see `tarn draw`)" in done.stderr
    assert b"tarn draw" in tarn("generate", "--help").stdout


def test_files_that_are_no_images_are_refused(tarn, model, image_file, tmp_path):
    data = image_file.read_bytes()
    cases = {"short": data[:-1], "long": data + b"x", "text": b"not an image", "empty": b""}
    for name, contents in cases.items():
        (tmp_path / name).write_bytes(contents)
        done = tarn("eval", model, tmp_path / name)
        assert done.returncode == 3 and done.stdout == b"", name
        assert name.encode() in done.stderr and done.stderr.count(b"\n") == 1
    done = tarn("eval", model, tmp_path / "absent")
    assert done.returncode == 3 and b"absent" in done.stderr


def test_an_interrupted_run_leaves_no_file(model, tarn_program, tmp_path):
    out = tmp_path / "out.idx"
    process = subprocess.Popen(
        [tarn_program, "draw", model, "--count", "2000000", "--out", out],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # Its own handler is in place: the mask of caught signals has SIGINT's bit.
    status = pathlib.Path(f"/proc/{process.pid}/status")
    while True:
        mask = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
        if int(mask.split()[1], 16) >> (signal.SIGINT - 1) & 1:
            break
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    stdout, _ = process.communicate(timeout=600)
    assert process.returncode == 130 and stdout == b""
    assert list(tmp_path.iterdir()) == []
