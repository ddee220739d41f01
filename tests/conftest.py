"""Settings of every Python test: the garbage collector runs seldom and leaves out what
the imports made. Torch alone makes more than 150,000 objects, and they stay."""

import gc


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
