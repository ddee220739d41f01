"""Every Python test: the garbage collector looks at what came after the imports only,
and seldom. Torch's modules are millions of objects that never go."""

import gc


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
