"""Tests of the operators on a CUDA device; without one they are skipped. `make cuda-test`
runs them alone, where torch sees a device."""

import pathlib

import pytest
import torch

HERE = pathlib.Path(__file__).resolve().parent


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="torch sees no CUDA device")
    for item in items:
        if HERE in pathlib.Path(item.fspath).parents:
            item.add_marker(skip)
