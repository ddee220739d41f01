"""These tests register a device with torch, for their whole process: they run
separately from the others, whose cases of operators they share."""

import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))


@pytest.fixture(autouse=True)
def fixed_start():
    torch.manual_seed(20200629)
