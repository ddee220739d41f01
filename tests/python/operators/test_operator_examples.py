"""Runs the example in the docstring of each name of tarn.ops."""

import doctest

import pytest
import torch

from tarn import ops


@pytest.mark.parametrize("name", ops.__all__)
def test_example_in_the_docstring(name):
    finder = doctest.DocTestFinder(recurse=False)
    names = {"torch": torch, "ops": ops}
    (found,) = finder.find(getattr(ops, name), name, module=False, globs=names)
    assert found.examples and any(f"ops.{name}" in e.source for e in found.examples)
    written: list[str] = []
    failed, tried = doctest.DocTestRunner(verbose=False).run(found, out=written.append)
    assert failed == 0 and tried == len(found.examples), "".join(written)
