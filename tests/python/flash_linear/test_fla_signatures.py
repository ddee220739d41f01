"""Names, order and defaults of arguments are those of flash-linear-attention 0.6.0, of
mamba_ssm and of causal_conv1d, kept in signatures.json. The first part of the file is written by

    python tests/python/flash_linear/test_fla_signatures.py FOLDER

with the unpacked package `fla` as FOLDER; "mamba_ssm" and "causal_conv1d" are written by
hand."""

import ast
import inspect
import json
import pathlib
import sys

import pytest

TABLE = pathlib.Path(__file__).with_name("signatures.json")
FAMILIES = (
    "simple_gla",
    "retention",
    "lightning_attn",
    "linear_attn",
    "gla",
    "delta_rule",
    "gated_delta_rule",
    "gated_delta_product",
    "comba",
    "gsa",
    "lightnet",
    "kda",
    "hgrn",
    "rwkv6",
    "rwkv7",
    "attn",
    "forgetting_attn",
    "generalized_delta_rule/dplr",
    "generalized_delta_rule/iplr",
)
# Functions that models import from modules of the families, which do not export them.
MORE = {
    "gated_delta_rule": ("fused_gdn_gate",),
    "gsa": ("fused_additive_gate",),
    "attn": ("attn_decoding_one_step",),
    "kda": ("fused_kda_gate", "fused_recurrent_kda_fwd"),
}


def parameters(function: ast.FunctionDef) -> list[str]:
    """As they are written, without types: "q", "scale=None", "**kwargs"."""
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args)]
    defaults = [None] * (len(names) - len(given.defaults)) + given.defaults
    found = [
        name if default is None else f"{name}={ast.unparse(default)}"
        for name, default in zip(names, defaults, strict=True)
    ]
    found += [
        f"{one.arg}={ast.unparse(default)}"
        for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        if default
    ]
    return found + ([f"**{given.kwarg.arg}"] if given.kwarg else [])


def read(folder: pathlib.Path) -> dict[str, list[str]]:
    """What the families' packages export, from their sources: nothing is imported."""
    found = {}
    for family in FAMILIES:
        package = folder / "ops" / family
        defined, renamed = {}, {}
        for path in package.glob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef):
                    defined[node.name] = parameters(node)
                elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
                    renamed[node.targets[0].id] = node.value.id
        exported = next(
            ast.literal_eval(node.value)
            for node in ast.parse((package / "__init__.py").read_text()).body
            if isinstance(node, ast.Assign)
        )
        for name in (*exported, *MORE.get(family, ())):
            if not name.startswith("naive"):
                found[name] = defined[renamed.get(name, name)]
    return dict(sorted(found.items()))


TABLES = json.loads(TABLE.read_text()) if TABLE.exists() else {"fla": {}, "mamba_ssm": {}}
SIGNATURES = {name: row for table in TABLES.values() for name, row in table.items()}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    from tarn import fla

    found = []
    for one in inspect.signature(getattr(fla, name)).parameters.values():
        stars = "**" if one.kind is inspect.Parameter.VAR_KEYWORD else ""
        default = "" if one.default is inspect.Parameter.empty else f"={one.default!r}"
        found.append(stars + one.name + default)
    assert found == SIGNATURES[name]


def test_all_of_them_are_there():
    from tarn import fla

    assert set(SIGNATURES) == set(fla.__all__)
    for family in FAMILIES:
        module = __import__(f"tarn.fla.{family.split('/')[0]}", fromlist=["__all__"])
        assert all(getattr(fla, name) is getattr(module, name) for name in module.__all__)


def test_modules_have_the_paths_of_the_originals():
    from tarn import fla
    from tarn.fla.gated_delta_rule.gate import fused_gdn_gate
    from tarn.fla.kda.chunk import chunk_kda
    from tarn.fla.kda.fused_recurrent import fused_recurrent_kda
    from tarn.fla.kda.gate import fused_kda_gate

    for one in (fused_gdn_gate, fused_kda_gate, chunk_kda, fused_recurrent_kda):
        assert getattr(fla, one.__name__) is one


if __name__ == "__main__":
    table = {**TABLES, "fla": read(pathlib.Path(sys.argv[1]))}
    lines = [
        f"  {json.dumps(part)}: {{\n"
        + ",\n".join(f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        + "\n  }"
        for part, rows in table.items()
    ]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
