"""`tarn quantize`: its files against numpy, which reads them from docs/model-format.md, and
computes the blocks of layers whose inputs are known; its messages and exit codes."""

import json
import struct

import numpy as np
import plain_model
import pytest

# bits, group, minimum of each scheme
SCHEMES = {
    f"{name}_{group}": (bits, group, minimum)
    for name, bits, minimum in (("I8", 8, False), ("I4", 4, False), ("I4M", 4, True))
    for group in (32, 64, 128)
}
TYPES = {"F32": "<f4", "F16": "<f2", "U8": "u1"}


class Groups:
    """A tensor in groups: its codes [rows, blocks, group] and what they stand for."""

    def __init__(self, scheme, shape, codes, scales, minima):
        self.bits, self.group, self.minimum = SCHEMES[scheme]
        self.shape = tuple(shape)
        rows, blocks = scales.shape
        codes = codes.reshape(rows, blocks, -1)
        if self.bits == 8:
            self.codes = codes.view(np.int8).astype(np.int64)
        else:
            self.codes = np.concatenate([codes & 15, codes >> 4], -1).astype(np.int64)
        self.scales = scales.astype(np.float32)[..., None]
        self.minima = None if minima is None else minima.astype(np.float32)[..., None]
        self.offset = 8 if self.bits == 4 and not self.minimum else 0

    def values(self, codes=None):
        codes = self.codes if codes is None else codes
        values = self.scales * (codes - self.offset).astype(np.float32)
        if self.minima is not None:
            values = values + self.minima
        return values.reshape(self.shape[0], -1)[:, : self.shape[1]]

    def nearest(self, weights):
        """Codes nearest to these numbers, with the scales that are stored."""
        padded = self.padded(weights)
        low, high = (-127, 127) if self.bits == 8 else (0, 15)
        with np.errstate(divide="ignore", invalid="ignore"):
            shifted = padded if self.minima is None else padded - self.minima
            codes = np.rint(shifted / self.scales) + self.offset
        return np.where(self.scales == 0, self.offset, codes).clip(low, high).astype(np.int64)

    def padded(self, weights):
        rows, blocks = self.scales.shape[:2]
        padded = np.zeros((rows, blocks * self.group), weights.dtype)
        padded[:, : weights.shape[1]] = weights
        return padded.reshape(rows, blocks, self.group)

    def inside(self):
        return self.padded(np.ones(self.shape, np.int64)) == 1


def read(folder):
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    note = json.loads(header.pop("__metadata__").get("quantised", "{}"))
    stored = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        values = np.frombuffer(data[begin:end], TYPES[entry["dtype"]])
        stored[name] = values.reshape(entry["shape"])
    tensors = {}
    for name, entry in note.items():
        parts = [stored.pop(f"{name}.{end}", None) for end in ("codes", "scales", "minima")]
        tensors[name] = Groups(entry["scheme"], entry["shape"], *parts)
    return tensors | stored


def numbers(tensors):
    return {
        name: tensor.values() if isinstance(tensor, Groups) else tensor
        for name, tensor in tensors.items()
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantize") / "model"
    config, weights = plain_model.write_model(folder, seed=4, positions="none")
    return folder, config, weights


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    words = np.random.default_rng(5).choice(["the ", "a ", "tarn ", "is ", "deep. "], 600)
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    path.write_text("".join(words))
    return path


def row_bytes(bits, group, minimum, weights):
    blocks = -(-weights.shape[1] // group)
    return blocks * (2 + 2 * minimum + group * bits // 8)


def quantize(tarn, *arguments):
    done = tarn("quantize", *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize("minimum", [False, True])
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_blocks_are_those_of_the_page(tarn, model, tmp_path, weights, minimum):
    if weights == "int8" and minimum:
        return
    folder, config, given = model
    for group in (32, 64, 128):
        out = tmp_path / f"{weights}-{group}"
        quantize(
            tarn, folder, "--out", out, "--weights", weights, "--group", group,
            *(["--minimum"] if minimum else []),
        )  # fmt: skip
        tensors = read(out)
        assert sorted(tensors) == sorted(given)
        for name, tensor in tensors.items():
            if given[name].ndim == 1:
                assert np.array_equal(tensor, given[name])
                continue
            fine = weights == "int8" or name.startswith(("value_embedding", "predictor"))
            assert tensor.bits == (8 if fine else 4)
            mine = minimum and not fine
            most = 64 if fine and weights == "int4" else group
            groups = [g for g in (128, 64, 32) if g <= most]
            fewest = min(groups, key=lambda g: row_bytes(tensor.bits, g, mine, given[name]))  # noqa: B023
            assert (tensor.group, tensor.minimum) == (fewest, mine)
            # Every code is the nearest one; numbers that are not there have code 0.
            inside = tensor.inside()
            near = tensor.nearest(given[name])
            exact = tensor.padded(given[name]) / np.where(tensor.scales == 0, 1, tensor.scales)
            if tensor.minima is not None:
                exact = exact - tensor.minima / tensor.scales
            tie = np.abs(exact - np.floor(exact) - 0.5) < 1e-4
            assert np.array_equal(tensor.codes[inside & ~tie], near[inside & ~tie])
            assert (tensor.codes[~inside] == tensor.offset).all()
            # Not worse than the scale of the largest number.
            error = (tensor.values() - given[name]).astype(np.float64)
            padded = tensor.padded(given[name].astype(np.float64))
            at = np.abs(padded).argmax(-1)[..., None]
            widest = np.take_along_axis(padded, at, -1)
            plain = Groups.__new__(Groups)
            plain.__dict__.update(tensor.__dict__)
            if tensor.minima is not None:
                first = tensor.padded(given[name])
                first[~inside] = np.inf
                low = first.min(-1)[..., None]
                first[~inside] = -np.inf
                high = first.max(-1)[..., None]
                plain.minima = low.astype(np.float16).astype(np.float32)
                plain.scales = ((high - low) / 15).astype(np.float16).astype(np.float32)
            elif tensor.bits == 8:
                plain.scales = np.abs(widest / 127).astype(np.float16).astype(np.float32)
            else:
                plain.scales = (widest / -8).astype(np.float16).astype(np.float32)
            other = plain.values(plain.nearest(given[name])) - given[name]
            total = lambda x: (tensor.padded(x.astype(np.float64)) ** 2).sum(-1)
            assert (total(error) <= total(other) * (1 + 1e-5) + 1e-12).all()


def test_the_model_is_that_of_its_numbers(tarn, model, tmp_path, text):
    folder, config, given = model
    for weights in ("int8", "int4"):
        out = tmp_path / weights
        quantize(tarn, folder, "--out", out, "--weights", weights)
        tokens = np.frombuffer(text.read_bytes()[:300], np.uint8)
        held = tmp_path / "held.txt"
        held.write_bytes(tokens.tobytes())
        want = plain_model.log_probabilities(config, numbers(read(out)), tokens)
        done = tarn("eval", out, held, "--per-token", "--json", "--exact")
        got = np.array(json.loads(done.stdout)["logprobs"])
        assert np.abs(got - want).max() < 2e-4  # float32 against float64
        fast = np.array(
            json.loads(tarn("eval", out, held, "--per-token", "--json").stdout)["logprobs"]
        )
        assert 0 < np.abs(fast - got).mean() < 0.05
        # The same weights rounded when the model is opened.
        again = tarn("eval", folder, held, "--per-token", "--json", "--weights", weights)
        assert np.array_equal(np.array(json.loads(again.stdout)["logprobs"]), fast)


def gptq(weights, tensor, inputs):
    """Codes with the tensor's scales: Frantar et al. 2022 with columns by falling moment."""
    h = inputs.T @ inputs / len(inputs)
    order = np.argsort(-np.diag(h), kind="stable")
    h = h + 0.01 * np.mean(np.diag(h)) * np.eye(len(h))
    upper = np.linalg.cholesky(np.linalg.inv(h[np.ix_(order, order)])).T
    left = weights.astype(np.float64)[:, order]
    codes = np.full(tensor.codes.shape, tensor.offset)
    low, high = (-127, 127) if tensor.bits == 8 else (0, 15)
    for j, column in enumerate(order):
        block, at = divmod(column, tensor.group)
        scale = tensor.scales[:, block, 0].astype(np.float64)
        minimum = 0 if tensor.minima is None else tensor.minima[:, block, 0].astype(np.float64)
        code = np.rint((left[:, j] - minimum) / scale + tensor.offset).clip(low, high)
        codes[:, block, at] = code
        value = scale * (code - tensor.offset) + minimum
        error = (left[:, j] - value) / upper[j, j]
        left[:, j:] -= error[:, None] * upper[j, j:]
    return codes


def spread(text, count=16384, run=512):
    """Runs from all over a text, evenly spaced, or all of it."""
    if len(text) <= count:
        return text
    runs = count // run
    begins = [i * (len(text) - run) // (runs - 1) for i in range(runs)]
    return np.concatenate([text[begin : begin + run] for begin in begins])


@pytest.mark.parametrize("times", [1, 10])
@pytest.mark.parametrize("options", [["--weights", "int4"], ["--weights", "int8", "--group", "32"],
                                     ["--weights", "int4", "--group", "32", "--minimum"]])  # fmt: skip
def test_calibration_is_that_of_numpy(tarn, model, tmp_path, text, options, times):
    folder, _, given = model
    out, long = tmp_path / "calibrated", tmp_path / "long.txt"
    long.write_bytes(text.read_bytes() + text.read_bytes().upper() * (times - 1))
    tokens = spread(np.frombuffer(long.read_bytes(), np.uint8))
    said = quantize(tarn, folder, "--out", out, "--calibrate", long, *options)
    assert f"calibrated with {len(tokens)} tokens of {long}" in said
    tensors = read(out)
    x = tensors["value_embedding.weight"].values()[tokens].astype(np.float64)
    name = "layers.0.norm1"
    x = plain_model._layer_norm(x, given[name + ".weight"], given[name + ".bias"], 1e-5)
    for map in ("query", "key", "value"):
        name = f"layers.0.attention.{map}_projection.weight"
        want = gptq(given[name], tensors[name], x)
        same = (want == tensors[name].codes)[tensors[name].inside()]
        assert same.mean() > 0.99, (name, same.mean())  # inputs in float32 decide few ties
        assert (tensors[name].codes != tensors[name].nearest(given[name])).any()
        error = lambda codes: ((x @ (tensors[name].values(codes) - given[name]).T) ** 2).sum()
        assert error(tensors[name].codes) < 0.5 * error(tensors[name].nearest(given[name]))


def test_check_tells_both_models(tarn, model, tmp_path, text):
    folder, _, _ = model
    said = quantize(tarn, folder, "--out", tmp_path / "out", "--weights", "int8", "--check", text)
    line = said.splitlines()[-1].split()
    assert line[0] == "bits_per_byte"
    before, after, difference = float(line[1]), float(line[3]), float(line[6])
    for dir, value in ((folder, before), (tmp_path / "out", after)):
        done = json.loads(tarn("eval", dir, text, "--json").stdout)
        assert done["bits_per_byte"] == value
    assert difference == pytest.approx(after - before, abs=1e-12)


def test_info_tells_the_formats(tarn, model, tmp_path):
    folder, _, given = model
    quantize(tarn, folder, "--out", tmp_path / "out", "--weights", "int4")
    facts = json.loads(tarn("info", tmp_path / "out", "--json").stdout)
    held = facts["weights_in_matrices"]
    assert sorted(held) == ["int4", "int8-32"]  # rows of 32 numbers fill no other group
    fine = sum(given[name].size for name in ("value_embedding.weight", "predictor.weight"))
    assert held["int8-32"] == fine
    assert held["int4"] == sum(w.size for w in given.values() if w.ndim == 2) - fine
    plain = json.loads(tarn("info", folder, "--json").stdout)
    assert list(plain["weights_in_matrices"]) == ["f32"]
    assert plain["weight_bytes"] > 2 * facts["weight_bytes"]
    assert plain["bytes_read_per_token"] > 2 * facts["bytes_read_per_token"]
    assert tarn("verify", tmp_path / "out").returncode == 0


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (("--weights", "int3"), 2, "--weights: want int8 or int4"),
        (("--group", "48"), 2, "--group: want"),
        (("--weights", "int8", "--minimum"), 2, "--minimum: only with --weights int4"),
        (("--keep", "linear1"), 2, "--keep: want PATTERN=TYPE, got 'linear1'"),
        (("--keep", "*=int5"), 2, "want one of stored, f32, bf16, int8"),
        (("--keep", "layers.9.*=int8"), 2, "keep: want a pattern that some matrix matches"),
        (("--calibrate", "missing.txt"), 3, "missing.txt"),
    ],
)
def test_what_is_wrong_is_said(tarn, model, tmp_path, arguments, code, message):
    folder, _, _ = model
    done = tarn("quantize", folder, "--out", tmp_path / "out", *arguments)
    assert done.returncode == code, done.stderr
    assert message in done.stderr.decode()
    lines = done.stderr.decode().splitlines()
    assert lines[1:] in ([], ["See `tarn quantize --help`."])
    assert not (tmp_path / "out" / "config.json").exists()


def test_folders_that_hold_a_model_stay(tarn, model, tmp_path):
    folder, _, _ = model
    out = tmp_path / "out"
    quantize(tarn, folder, "--out", out)
    for target in (folder, out):
        before = (target / "model.safetensors").read_bytes()
        done = tarn("quantize", folder, "--out", target)
        assert done.returncode == 2
        assert (target / "model.safetensors").read_bytes() == before
    quantize(tarn, folder, "--out", out, "--weights", "int4", "--overwrite")
    assert tarn("quantize", tmp_path / "none", "--out", tmp_path / "x").returncode == 3


def test_files_that_are_not_what_they_must_be(tarn, model, tmp_path):
    folder, _, _ = model
    out = tmp_path / "out"
    quantize(tarn, folder, "--out", out)
    path = out / "model.safetensors"
    data = path.read_bytes()

    def refused(changed, message):
        path.write_bytes(changed)
        for command in (("info", out), ("eval", out, path), ("verify", out)):
            done = tarn(*command)
            assert done.returncode == 3, (command, done.stderr)
            told = done.stderr + done.stdout
            assert told.count(b"\n") >= 1
            assert message in told.decode(), told

    size = struct.unpack("<Q", data[:8])[0]
    header = data[8 : 8 + size]
    refused(
        data[:8] + header.replace(b'\\"I8_64\\"', b'\\"I9_64\\"', 1) + data[8 + size :], "I8_32"
    )
    refused(
        data[:8] + header.replace(b".scales", b".scalez", 1) + data[8 + size :], "no such tensor"
    )
    refused(data[:-2] + b"\xff\x7f", "NaN or infinity")
