"""tarn.runtime with image models: the program's images and figures, shapes and
arguments, draws against a plain loop."""

import json
import struct
import subprocess

import numpy as np
import pytest
from programs import BUILD

runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)

SHAPE = (6, 4)
BYTES = 24


def written(folder, kind):
    subprocess.run([BUILD / "write_random_model", folder, kind], check=True)
    return folder


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return written(tmp_path_factory.mktemp("model") / "image", "image")


@pytest.fixture(scope="module")
def model(model_dir):
    return runtime.Model(model_dir)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).integers(0, 256, (4, *SHAPE), np.uint8)


def program(*command):
    done = subprocess.run([BUILD / "tarn", *command], check=True, capture_output=True)
    return done.stdout


def test_the_program_draws_the_same(model, model_dir, tmp_path):
    drawn = model.generate_images(5, seed=7, first=3)
    assert drawn.shape == (5, *SHAPE) and drawn.dtype == np.uint8
    assert (drawn[:, 0, 0] == 3).all()
    out = tmp_path / "out.idx"
    program("draw", model_dir, "--count", "5", "--seed", "7", "--first", "3", "--out", out)
    header = struct.pack(">HBB3I", 0, 8, 3, 5, *SHAPE)
    assert out.read_bytes() == header + drawn.tobytes()


def test_batch_and_threads_change_no_bit(model, model_dir):
    want = model.generate_images(9, seed=1)
    for batch in (1, 4, 9):
        np.testing.assert_array_equal(model.generate_images(9, seed=1, batch=batch), want)
    two = runtime.Model(model_dir, threads=2)
    np.testing.assert_array_equal(two.generate_images(9, seed=1), want)
    np.testing.assert_array_equal(model.generate_images(3, seed=1), want[:3])
    assert not np.array_equal(model.generate_images(9, seed=2), want)


def test_completions_keep_what_is_given(model, images):
    done = model.complete(images, 10, samples=3, seed=5)
    assert done.shape == (4, 3, *SHAPE)
    flat = done.reshape(4, 3, BYTES)
    assert (flat[:, :, :10] == images.reshape(4, 1, BYTES)[:, :, :10]).all()
    # Bytes that are not given are not read.
    others = images.reshape(4, BYTES).copy()
    others[:, 10:] = 99
    again = model.complete(others.reshape(images.shape), 10, samples=3, seed=5)
    np.testing.assert_array_equal(again, done)
    np.testing.assert_array_equal(model.complete(images, BYTES)[:, 0], images)
    # A strided view gives the same as a copy.
    np.testing.assert_array_equal(
        model.complete(np.repeat(images, 2, axis=0)[::2], 10, samples=3, seed=5), done
    )


def test_bits_per_dim_follow_the_parameters_of_each_byte(model, images):
    bits = model.bits_per_dim(images)
    assert bits.shape == (4,) and bits.dtype == np.float64
    tail = model.bits_per_dim(images, pixels=12)
    for image, whole, half in zip(images, bits, tail, strict=True):
        tokens = image.reshape(-1).astype(np.int64)
        params = model.score(model.state(), tokens[:-1]).astype(np.float64)
        assert params.shape == (BYTES - 1, model.n_outputs)
        logits, means, log_scales = np.split(params, 3, axis=-1)
        y = 2 * tokens[1:, None] / 255 - 1
        scales = np.exp(log_scales)  # random weights: above the floor of -7
        assert log_scales.min() > -7
        sigma = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
        upper = sigma((y - means + 1 / 255) / scales)
        lower = sigma((y - means - 1 / 255) / scales)
        p = np.where(y < -0.999, upper, np.where(y > 0.999, 1 - lower, upper - lower))
        weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        nats = -np.log((weights * p).sum(-1))
        assert whole == pytest.approx(nats.mean() / np.log(2), rel=1e-3)
        assert half == pytest.approx(nats[11:].mean() / np.log(2), rel=1e-3)
    np.testing.assert_array_equal(model.bits_per_dim(images[2:]), bits[2:])
    assert model.bits_per_dim(images[:0]).shape == (0,)


def test_the_program_scores_the_same(model, model_dir, images, tmp_path):
    path = tmp_path / "images"
    path.write_bytes(struct.pack(">HBB3I", 0, 8, 3, *images.shape) + images.tobytes())
    got = json.loads(program("eval", model_dir, path, "--pixels", "5", "--json"))
    assert got["bits_per_dim"] == pytest.approx(model.bits_per_dim(images, pixels=5).mean())


@pytest.mark.parametrize(
    ("call", "error", "name"),
    [
        (lambda m, x: m.generate_images(-1), ValueError, "count"),
        (lambda m, x: m.generate_images(1.5), TypeError, "count"),
        (lambda m, x: m.generate_images(1, first=256), ValueError, "first"),
        (lambda m, x: m.generate_images(1, temperature=-1), ValueError, "temperature"),
        (lambda m, x: m.generate_images(1, temperature=float("nan")), ValueError, "temperature"),
        (lambda m, x: m.generate_images(1, seed=-1), ValueError, "seed"),
        (lambda m, x: m.generate_images(1, batch=-1), ValueError, "batch"),
        (lambda m, x: m.complete(x, 0), ValueError, "pixels"),
        (lambda m, x: m.complete(x, BYTES + 1), ValueError, "pixels"),
        (lambda m, x: m.complete(x, 3, samples=0), ValueError, "samples"),
        (lambda m, x: m.complete(x.astype(np.float32), 3), TypeError, "uint8"),
        (lambda m, x: m.complete(x[0], 3), ValueError, "images"),
        (lambda m, x: m.bits_per_dim(x[:, :, :3]), ValueError, "images"),
        (lambda m, x: m.bits_per_dim(x, pixels=BYTES), ValueError, "pixels"),
        (lambda m, x: m.generate("text"), ValueError, "image model"),
    ],
)
def test_wrong_arguments_are_named(model, images, call, error, name):
    with pytest.raises(error, match=name):
        call(model, images)


def test_no_images_and_other_models(model, images, tmp_path):
    assert model.generate_images(0).shape == (0, *SHAPE)
    assert model.complete(images[:0], 3, samples=2).shape == (0, 2, *SHAPE)
    text = runtime.Model(written(tmp_path / "text", "linear"))
    assert text.n_outputs == text.vocab_size
    for call in (
        lambda: text.generate_images(1),
        lambda: text.complete(images, 1),
        lambda: text.bits_per_dim(images),
    ):
        with pytest.raises(ValueError, match="image model"):
            call()
