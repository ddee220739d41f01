"""The trivial baselines against loops, exact fractions and the trainer's own split."""

import math
import random
import re
import struct
import subprocess
from collections import Counter
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest

from experiments.baselines import fits, labels, pixels, splits
from experiments.baselines.counts import ORDERS, CountTable, choose_order, copy_chance
from experiments.core import ExperimentError, Progress, Settings
from experiments.core.places import programs

# --- Counts -------------------------------------------------------------------


def exact(text, history, symbol, symbols, order):
    """Witten and Bell's interpolation by counting in a string, in fractions."""
    if order < 0:
        return Fraction(1, symbols)
    lower = exact(text, history, symbol, symbols, order - 1)
    if order > len(history):
        return lower
    h = history[len(history) - order :]
    after = Counter(text[i + order] for i in range(len(text) - order) if text[i : i + order] == h)
    if not after:
        return lower
    return (after[symbol] + len(after) * lower) / (sum(after.values()) + len(after))


@pytest.mark.parametrize("order", ORDERS)
def test_counts_are_exact(order):
    numbers = random.Random(order)
    learned = [numbers.choice((0, 0, 1, 2)) for _ in range(60)]
    rows = [[numbers.randrange(4) for _ in range(9)] for _ in range(5)]  # 3 was never seen
    found = CountTable(np.array(learned), 4, order).probabilities(np.array(rows))
    text = "".join(map(str, learned))
    for row, chances in zip(rows, found, strict=True):
        said = "".join(map(str, row))
        for t in range(1, len(row)):
            assert chances[t - 1] == pytest.approx(
                float(exact(text, said[:t], said[t], 4, order)), rel=1e-12
            )


def test_counts_by_hand():
    """aab: p(a) = (2 + 2/2) / (3 + 2) = 3/5; after a, seen twice with two followers,
    p(a) = (1 + 2 * 3/5) / (2 + 2) = 11/20."""
    table = CountTable(np.array([0, 0, 1]), 2, 1)
    assert table.probabilities(np.array([[0, 0, 1]])).tolist() == [[0.55, pytest.approx(0.45)]]
    assert table.bits(np.array([[0, 0]])) == pytest.approx(-math.log2(0.55))


@pytest.mark.parametrize(
    "learned, symbols, order", [([0, 1], 2, 2), ([0] * 99, 65536, 4), ([0], 2, -1)]
)
def test_counts_refuse(learned, symbols, order):
    with pytest.raises(ValueError, match="CountTable"):
        CountTable(np.array(learned), symbols, order)


def test_the_order_follows_the_text():
    """That with the fewest bits on the last tenth, by exact fractions; two symbols tell the
    next one of a text of period three."""
    numbers = random.Random(7)
    learned = [numbers.choice((0, 1, 1)) for _ in range(70)]
    text = "".join(map(str, learned))
    said = text[63:]
    bits = [
        -sum(math.log2(exact(text[:63], said[:t], said[t], 2, k)) for t in range(1, 7))
        for k in ORDERS
    ]
    assert choose_order(np.array(learned), 2) == bits.index(min(bits))
    assert choose_order(np.array([0, 0, 1] * 200), 2) >= 2


@pytest.mark.parametrize("seq_len", [32, 64])
def test_copy_chance(seq_len):
    """Every length as often as its labels are: n symbols drawn alike, one separator."""
    least, most = seq_len // 4, (seq_len - 1) // 2 - 1
    count: Counter[int] = Counter()
    for n in range(least, most + 1):
        count[0] += 10
        count.update({symbol: n for symbol in range(1, 11)})  # ten rows of n labels each
    whole = count.total()
    nats = -sum(n / whole * math.log(n / whole) for n in count.values())
    assert copy_chance(seq_len) == pytest.approx((nats, max(count.values()) / whole))


# --- Images -------------------------------------------------------------------


def some_images(seed, count=6, channels=3):
    """Smooth ones, black and white included."""
    made = np.random.default_rng(seed)
    start = made.integers(-40, 300, (count, 1, 1, channels))
    return np.clip(start + made.integers(-30, 30, (count, 4, 5, channels)), 0, 255).astype(np.uint8)


def level(value):
    return sum(value >= edge for edge in (1, 64, 128, 192, 252))


@pytest.mark.parametrize("channels", [1, 3])
def test_differences_are_those_of_a_loop(channels):
    learned, judged = some_images(1, channels=channels), some_images(2, channels=channels)

    def differences(images):
        for image in images:
            flat = [int(x) for x in image.reshape(-1)]
            for i in range(1, len(flat)):
                yield (flat[i] - flat[i - channels if i >= channels else i - 1]) % 256

    count = Counter(differences(learned))
    bits = [-math.log2((1 + count[d]) / (256 + count.total())) for d in differences(judged)]
    assert pixels.difference_bits(learned, judged) == pytest.approx(sum(bits) / len(bits))


@pytest.mark.parametrize("channels", [1, 3])
def test_neighbours_are_those_of_a_loop(channels):
    learned, judged = some_images(3, channels=channels), some_images(4, channels=channels)

    def cases(images):
        for image in images:
            for y, x, c in np.ndindex(image.shape):
                around = [
                    level(int(image[y + dy, x + dx, c]))
                    if y + dy >= 0 and 0 <= x + dx < image.shape[1]
                    else 0
                    for dy, dx in ((0, -1), (-1, 0), (-1, -1), (-1, 1))
                ]
                if (y, x, c) != (0, 0, 0):
                    yield around, int(image[y, x, c])

    after = {}
    for around, value in cases(learned):
        for k in range(5):
            after.setdefault((*around[:k],), Counter())[value] += 1
    bits = []
    for around, value in cases(judged):
        chance = 1 / 256
        for k in range(5):
            seen = after.get((*around[:k],), Counter())
            if seen:
                chance = (seen[value] + len(seen) * chance) / (seen.total() + len(seen))
        bits.append(-math.log2(chance))
    assert pixels.neighbour_bits(learned, judged) == pytest.approx(sum(bits) / len(bits))


# --- Labels -------------------------------------------------------------------


def test_edits_are_those_of_the_definition():
    @lru_cache(None)
    def apart(a, b):
        if not a or not b:
            return len(a) + len(b)
        return min(apart(a[1:], b) + 1, apart(a, b[1:]) + 1, apart(a[1:], b[1:]) + (a[0] != b[0]))

    numbers = random.Random(1)
    words = ["", *("".join(numbers.choices("abc", k=n)) for n in range(1, 7))]
    assert all(labels.edits(a, b) == apart(a, b) for a in words for b in words)


def test_labels_by_hand():
    assert labels.commonest(["b", "a", "a", "b"]) == "b"
    assert labels.commonest_after(["n", "n", "x", "n"], [1, 2, 9, 2]) == {"n": 2, "x": 9}
    assert labels.letter_error(["one", "two"], ["one", "six"]) == 3 / 6
    assert labels.constant_name(["four", "five", "five"], ["zero", "five", "four"]) == "five"
    rows = fits.listops_fits(
        [["0", "n12]"], ["9", "x19]"], ["0", "n50]"]], [["0", "n77]"], ["9", "x11]"]]
    )
    assert [row["value"] for row in rows] == [0.5, 1.0]


def test_frames_have_the_likeliest_label():
    made = np.random.default_rng(0)
    known = {"a": made.normal(0, 1, (40, 3)), "b": made.normal(1, 3, (30, 3))}
    classifier = labels.FrameClassifier(known)
    for seed in range(8):
        asked = np.random.default_rng(seed).normal(0.5, 2, (4, 3))
        score = {}
        for label, frames in known.items():
            score[label] = 0.0
            for band in range(3):
                values = [float(x) for x in frames[:, band]]
                mean = sum(values) / len(values)
                variance = sum((x - mean) ** 2 for x in values) / len(values) + 1e-6
                score[label] += sum(
                    -math.log(math.sqrt(2 * math.pi * variance))
                    - (float(x) - mean) ** 2 / (2 * variance)
                    for x in asked[:, band]
                )
        assert classifier.label(asked) == max(score, key=lambda one: score[one])


# --- Splits -------------------------------------------------------------------


def plain_mix(x):
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ x >> 33) * factor % 2**64
    return x ^ x >> 33


def plain_hash(content):
    golden = 0x9E3779B97F4A7C15
    value = plain_mix((len(content) + golden) % 2**64)
    whole = len(content) // 8 * 8
    for i in range(0, whole, 8):
        value = (value ^ int.from_bytes(content[i : i + 8], "little")) * golden % 2**64
        value ^= value >> 32
    return plain_mix(value ^ int.from_bytes(content[whole:], "little"))


@pytest.mark.parametrize("size", [1, 7, 8, 9, 196])
def test_hash_is_that_of_integers(size):
    rows = np.random.default_rng(size).integers(0, 256, (5, size)).astype(np.uint8)
    assert splits.hash_bytes(rows).tolist() == [plain_hash(one.tobytes()) for one in rows]


def _described(tmp_path, *words):
    """What the trainer says of its data."""
    tarn = programs() / "tarn"
    if not tarn.is_file():
        pytest.skip("the programs are not built")
    done = subprocess.run(
        [
            tarn,
            "train",
            *words,
            "--steps",
            "1",
            "--d-model",
            "16",
            "--n-layers",
            "1",
            "--n-heads",
            "2",
            "--batch",
            "2",
            "--eval-windows",
            "2",
            "--sample-every",
            "0",
            "--out",
            tmp_path / "model",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("ends", ["\n", ""])
def test_split_of_text_is_the_trainers(tmp_path, ends):
    numbers = random.Random(3)
    lines = ["".join(numbers.choices("abcd ", k=numbers.randrange(1, 90))) for _ in range(4000)]
    lines[2000:2300] = lines[1000:1300]
    text = (ends.join(lines) + "\n").encode()
    (tmp_path / "text.txt").write_bytes(text)
    said = _described(
        tmp_path, "--data", tmp_path / "text.txt", "--tokenizer", "char", "--seq-len", "16"
    )
    learned, held = splits.split_text(text)
    assert f"training on {len(learned)} bytes, held out {len(held)} " in said
    assert f" {len(splits.blocks(text))} records" in said or "dropped" in said


def test_split_of_images_is_the_trainers(tmp_path):
    images = np.random.default_rng(5).integers(0, 256, (300, 4, 4, 1)).astype(np.uint8)
    (tmp_path / "images").write_bytes(struct.pack(">4I", 2051, 300, 4, 4) + images.tobytes())
    said = _described(
        tmp_path, "--data", tmp_path / "images", "--preset", "images-small", "--pool", "2"
    )
    learned = splits.learned_images(splits.pooled(images, 2))
    assert re.search(r": (\d+) images of 2 x 2 x 1 to learn", said)[1] == str(len(learned))


def test_pooled_rounds_to_the_nearest():
    image = np.array([[0, 1], [1, 0]], np.uint8).reshape(1, 2, 2, 1)
    assert splits.pooled(image, 2).item() == 1  # 0.5 is rounded up
    assert splits.pooled(image[:, ::-1] * 5, 2).item() == 3


def test_windows_are_spaced_evenly():
    rows = splits.windows(np.arange(42), 4, 5)
    assert rows.tolist() == [list(range(a, a + 5)) for a in (0, 8, 16, 24, 32)]
    with pytest.raises(ValueError, match="windows"):
        splits.windows(np.arange(42), 4, 50)


# --- All of them ---------------------------------------------------------------


def test_text_fits_mark_the_chosen_order():
    lines = random.Random(1)
    text = "".join(lines.choice(("to be\n", "or not\n", "that is\n")) for _ in range(9000)).encode()
    rows = fits.text_fits("x/text", text, 8, 20, "text-shakespeare", "bits per byte")
    assert [row["name"] for row in rows] == [f"counts of order {k}" for k in ORDERS]
    assert sum(row["chosen"] for row in rows) == 1 and rows[0]["judged"] == 160
    assert rows[0]["value"] > rows[3]["value"] > 0


def test_baselines_have_one_size(tmp_path):
    settings = Settings(fits.EXPERIMENT, "quick", tmp_path)
    with pytest.raises(ExperimentError, match="want cpu, got quick"):
        fits.run(settings, Progress("baselines", quiet=True))
