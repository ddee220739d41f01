"""Importing tarn: version, library search, one clear line when it fails."""

import ast
import pathlib

import pytest
import torch

import tarn
from tarn import _library


def test_version_and_names():
    assert tarn.__version__ == "0.1.0"
    assert tarn.LinearState._fields == ("S", "z", "extra")
    assert tarn.LinearState._field_defaults == {"extra": None}
    assert tarn.simd_target() == torch.ops.tarn.simd_target() != ""


def one_line(error):
    text = str(error.value)
    assert "\n" not in text
    return text


def test_missing_library(monkeypatch, tmp_path):
    monkeypatch.setenv("TARN_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(ImportError) as error:
        _library.load()
    assert "none.so" in one_line(error) and "make build" in one_line(error)


def test_library_in_the_package_or_in_build(monkeypatch):
    monkeypatch.delenv("TARN_LIBRARY", raising=False)
    first, second = _library._candidates()
    assert first.parts[-3:] == ("tarn", "lib", "libtarn_pytorch.so")
    assert second.parts[-2:] == ("build", "libtarn_pytorch.so")
    assert second.parents[1] == first.parents[3]


def test_file_that_is_no_tarn_library(monkeypatch, tmp_path):
    path = tmp_path / "other.so"
    monkeypatch.setenv("TARN_LIBRARY", str(path))
    for contents in (b"", b"ELF of something else"):
        path.write_bytes(contents)
        with pytest.raises(ImportError) as error:
            _library.load()
        assert "other.so" in one_line(error)


def test_damaged_library(monkeypatch, tmp_path):
    version = torch.__version__.split("+")[0]
    path = tmp_path / "damaged.so"
    path.write_bytes(f"TARN_BUILT_WITH_TORCH={version};".encode())
    monkeypatch.setenv("TARN_LIBRARY", str(path))
    with pytest.raises(ImportError) as error:
        _library.load()
    assert "does not load" in one_line(error)


def test_other_torch(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "1.2.3+cpu")
    with pytest.raises(ImportError) as error:
        _library.load()
    assert "got torch 1.2.3" in one_line(error)


def test_no_torch(monkeypatch):
    monkeypatch.setattr(_library, "_torch_version", lambda: None)
    with pytest.raises(ImportError) as error:
        _library.load()
    assert "want torch" in one_line(error) and "tarn.runtime" in one_line(error)
    _library.check_torch()  # the runtime part still works


PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "python" / "tarn"


def imported(module, names):
    """The modules of tarn that a file imports, inside functions too. The package
    itself imports nothing before first use."""
    for node in ast.walk(ast.parse((PACKAGE.parent / names[module]).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: want absolute imports"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in names else node.module


def test_imports_run_in_no_circle():
    names = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        names[name] = path.relative_to(PACKAGE.parent)
    del names["tarn"]
    left = {m: {i for i in imported(m, names) if i in names} for m in names}
    assert len(left) > 60 and left["tarn.models._make"] >= {"tarn.models._earlier"}
    while free := {module for module, needs in left.items() if not needs & left.keys()}:
        left = {module: needs for module, needs in left.items() if module not in free}
    assert not left, f"modules that import each other, or one that does: {sorted(left)}"
