"""What an installed wheel must do, without pytest and without the source tree:
installed.py SITE MODEL runtime|torch

SITE is where the package must have been found, MODEL a directory of a language model.
The working directory is empty and may be written to.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

SITE, MODEL = (pathlib.Path(part).resolve() for part in sys.argv[1:3])
HAS_TORCH = sys.argv[3] == "torch"


def loaded_libraries():
    """Files that this process has mapped."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if line.count("/")}


def check_locations():
    import tarn
    import tarn.runtime
    from tarn.runtime import _library

    for file in (tarn.__file__, tarn.runtime.__file__, _library.module.__file__):
        assert pathlib.Path(str(file)).is_relative_to(SITE), file
    assert str(_library.module.__file__).endswith(".abi3.so"), _library.module.__file__
    assert _library.module.version == tarn.__version__
    # The one library that a system need not have comes from the wheel.
    highway = [name for name in loaded_libraries() if "libhwy" in name]
    assert highway and all(pathlib.Path(name).is_relative_to(SITE) for name in highway), highway


def program(*arguments):
    path = pathlib.Path(sys.executable).parent / "tarn"
    done = subprocess.run(
        [path, *map(str, arguments)],
        text=True,
        errors="replace",
        encoding="utf-8",
        capture_output=True,
    )
    assert done.returncode == 0, f"tarn {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def check_runtime():
    """One call of each area: open, prefill, step, batch, states in files, text, counts."""
    from tarn import accounting
    from tarn.runtime import FormatError, Model

    model = Model(MODEL)
    prompt = model.encode("ABBA")
    state = model.state()
    logits = model.prefill(state, prompt)
    assert logits.dtype == np.float32 and logits.shape == (model.vocab_size,)
    other = state.clone()
    row = model.step(state, prompt[0])
    (batch,) = model.step_batch([other], prompt[:1])
    np.testing.assert_array_equal(row, batch)
    state.save("one.state")
    assert model.load_state("one.state") == state and model.decode(prompt) == "ABBA"
    assert accounting.parameters_by_part(model.config)["total"] == model.parameters
    shutil.copytree(MODEL, "damaged")
    pathlib.Path("damaged/config.json").write_text("{")
    try:
        Model("damaged")
        raise AssertionError("a damaged model was opened")
    except FormatError as error:
        assert "damaged" in str(error), error


def check_program():
    from tarn.runtime import Model

    assert program("--version").startswith("tarn ")
    assert "parameters" in program("info", MODEL)
    text = program("generate", MODEL, "--prompt", "AB", "--max-tokens", "8", "--seed", "3")
    again = Model(MODEL).generate("AB", max_tokens=8, seed=3)
    assert again in text, (again, text)


def check_refusals():
    """Without operators these parts end in one line that names torch."""
    import importlib

    for part in ("tarn.ops", "tarn.models", "tarn.builders"):
        try:
            importlib.import_module(part)
            raise AssertionError(f"{part} was imported")
        except ImportError as error:
            assert "torch" in str(error) and len(str(error).splitlines()) == 1, error


def check_operators():
    """An operator with its gradient, a layer, a trained model that the runtime opens, and
    the other packages' names."""
    import torch

    import tarn
    from tarn.runtime import Model

    queries, keys, values = (torch.randn(1, 5, 2, 4, requires_grad=True) for _ in range(3))
    out = tarn.ops.linear_attention(queries, keys, values)
    out.sum().backward()
    assert out.shape == (1, 5, 2, 4) and values.grad is not None
    layer = tarn.nn.EncoderLayer(16, 2, mixer="gdn")
    rows = torch.randn(1, 6, 16)
    _, state = layer.prefill(rows[:, :5])
    row, _ = layer.step(rows[:, 5], state)
    torch.testing.assert_close(row, layer(rows)[:, 5], rtol=0, atol=1e-4)

    model = tarn.models.LanguageModel(d_model=32, n_layers=2)
    optimizer = tarn.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.randint(256, (2, 9))
    model(tokens).logsumexp(-1).sum().backward()
    optimizer.step()
    tarn.save_model(model, "trained")
    opened = Model("trained")
    scores = opened.score(opened.state(), tokens[0].tolist())
    torch.testing.assert_close(model(tokens)[0], torch.from_numpy(scores), rtol=0, atol=1e-3)
    assert "parameters" in program("info", "trained")

    from tarn.builders import TransformerEncoderBuilder

    encoder = TransformerEncoderBuilder.from_kwargs(
        n_layers=1, n_heads=2, query_dimensions=4, value_dimensions=4, attention_type="linear"
    ).get()
    assert encoder(torch.randn(1, 3, 8)).shape == (1, 3, 8)
    gates = torch.nn.functional.logsigmoid(torch.randn(1, 5, 2, 4))
    tarn.fla.chunk_gla(queries, keys, values, gates)
    own = {name for name in loaded_libraries() if "libtarn_pytorch" in name}
    assert len(own) == 1 and pathlib.Path(*own).is_relative_to(SITE), own


check_locations()
check_runtime()
check_program()
if HAS_TORCH:
    check_operators()
else:
    check_refusals()
print(f"installed: {sys.argv[3]}, glibc {os.confstr('CS_GNU_LIBC_VERSION')}")
