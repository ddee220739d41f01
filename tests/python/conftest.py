"""The start of every test: fixed random numbers, one thread (the tensors are
small; the tests of threads set their own)."""

import pytest
import torch


@pytest.fixture(autouse=True)
def fixed_start():
    torch.manual_seed(20200629)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
