"""Files of models: names that are not UTF-8, and documents that the runtime refuses."""

import os
import pathlib
import re
import shutil
import struct

import pytest
import torch

import tarn
from tarn import accounting, models, recurrent

SMALL = dict(vocab_size=256, d_model=16, n_layers=1, n_heads=2, d_ff=20, max_positions=16)


@pytest.fixture
def folder(tmp_path):
    tarn.save_model(models.LanguageModel(**SMALL), tmp_path / "m")
    return tmp_path / "m"


def header_of(path):
    data = path.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    return data[8:end], data[end:]


def write(path, header, rest):
    path.write_bytes(struct.pack("<Q", len(header)) + header + rest)


def refused(folder):
    """The message of load_model; the runtime must refuse the directory as well."""
    with pytest.raises(ValueError) as error:
        tarn.load_model(folder)
    runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
    with pytest.raises(runtime.FormatError):
        runtime.Model(folder)
    return str(error.value)


def test_a_header_names_each_tensor_once(folder):
    path = folder / "model.safetensors"
    header, rest = header_of(path)
    name = b'"predictor.bias":'
    entry = header[header.index(name) :]
    entry = entry[: entry.index(b"}") + 1]
    write(path, b"{" + entry + b"," + header[1:], rest)
    assert "model.safetensors: header: want each key once, got 'predictor.bias'" in refused(folder)
    write(path, header.replace(b'"dtype":"F32"', b'"dtype":"F16","dtype":"F32"', 1), rest)
    assert "'dtype' twice" in refused(folder)
    write(path, header, rest)
    tarn.load_model(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("{", '{"format_version": 4, ', 1),
        lambda text: text.replace('"d_model": 16', '"d_model": 32, "d_model": 16', 1),
        lambda text: text.replace('"d_model": 16', '"d_model": NaN', 1),
        lambda text: text.replace('"d_model": 16', '"d_model": 1e999', 1),
        lambda text: text.replace("{", '{"x": ' + "[" * 70 + "]" * 70 + ", ", 1),
        lambda text: text.replace("{", '{"x": ' + "[" * 9999 + "]" * 9999 + ", ", 1),
        lambda text: text.replace("{", '{"x": "\\ud800", ', 1),
        lambda text: text + "{}",
        lambda text: "\ufeff" + text,
    ],
)
def test_a_configuration_is_strict_json(folder, change):
    path = folder / "config.json"
    text = change(path.read_text())
    assert text != path.read_text()
    path.write_text(text)
    assert re.match(re.escape(f"{path}: ") + r"(byte \d+: )?want ", refused(folder))


def test_a_configuration_is_utf8(folder):
    path = folder / "config.json"
    path.write_bytes(path.read_bytes().replace(b"{", b'{"\xff": 1, ', 1))
    assert "UTF-8" in refused(folder)


def test_weights_have_the_types_that_the_runtime_reads(folder):
    path = folder / "model.safetensors"
    header, rest = header_of(path)
    write(path, header.replace(b"F32", b"I32"), rest)
    assert "want F32, BF16 or F16" in refused(folder)


@pytest.mark.parametrize(
    "text",
    [
        '["a", "a"]',
        '["a", "b", "c"]',
        '["a", 1]',
        '{"a": 1}',
        '["a", "b\\n"]',
        '["a", ""]',
        '["a", "b"] 1',
    ],
)
def test_labels_follow_the_rules_of_the_runtime(tmp_path, text):
    sizes = {**SMALL, "n_classes": 2}
    tarn.save_model(models.Classifier(**sizes), tmp_path / "m")
    tarn.load_model(tmp_path / "m")
    (tmp_path / "m" / "labels.json").write_text(text)
    assert re.search(r"labels\.json: (byte \d+: )?want ", refused(tmp_path / "m"))


def forms_of(path):
    """A path as bytes, as str and as a path object."""
    name = os.fsdecode(path)
    return path, name, pathlib.Path(name)


def test_names_that_are_not_utf8(folder, tmp_path):
    base = os.fsencode(tmp_path) + b"/\xff\xe4"
    for path in forms_of(base):
        tarn.save_model(
            tarn.load_model(folder), path, tokenizer=os.fsencode(folder) + b"/tokenizer.json"
        )
        again = tarn.load_model(path)
        for name, tensor in tarn.load_model(folder).state_dict().items():
            assert torch.equal(tensor, again.state_dict()[name])
        assert accounting.parameters_by_part(path) == accounting.parameters_by_part(folder)
        shutil.rmtree(base)
    state = [recurrent.AttentionState("linear", {"s": torch.ones(2, 3)}, torch.ones(2).long(), {})]
    for path in forms_of(base + b".state"):
        recurrent.save_state(state, path)
        (again,) = recurrent.load_state(path)
        assert torch.equal(again.tensors["s"], state[0].tensors["s"])


def test_errors_about_such_names_can_be_printed(folder, tmp_path):
    base = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(base)
    for path in forms_of(base):
        for call in (tarn.load_model, recurrent.load_state, accounting.parameters_by_part):
            with pytest.raises(OSError) as error:
                call(path)
            str(error.value).encode()
    for name, data in (("config.json", b"{"), ("model.safetensors", b"x")):
        shutil.copytree(folder, os.fsdecode(base), dirs_exist_ok=True)
        with open(os.path.join(base, name.encode()), "wb") as file:
            file.write(data)
        with pytest.raises(ValueError, match=r"\\xff.*" + name) as error:
            tarn.load_model(base)
        str(error.value).encode()
