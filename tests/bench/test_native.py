"""The kernels' cases through ctypes."""

import native
import pytest

CASES = [n for n in native.case_names() if not n.startswith("limit_")]


def test_every_operator_of_the_kernels_has_a_case():
    folders = {p.parent.name for p in (native.ROOT / "src/kernels").glob("*/*_bench.cc")}
    assert len(CASES) >= len(folders) >= 6
    assert "linear_attention_gradient" in CASES


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_cases_run_and_count_their_work(name, threads):
    small = {"matmul": {"rows": 3, "inputs": 20, "outputs": 70}, "adam_step": {"count": 99}}
    params = small.get(name, {})
    if name.startswith("linear_attention"):
        params = {"heads": 2, "d_key": 16}
        if not name.endswith("step"):
            params["seq_len"] = 40
    with native.Case(name, threads, sets=2, **params) as case:
        wall, cpu = case.run(3)
        assert wall > 0 and cpu > 0
        assert case.useful_flop > 0 and case.bytes > 0
        assert case.executed_flop >= case.useful_flop


def test_work_follows_the_formulas():
    with native.Case("linear_attention_forward", 1, seq_len=10, heads=3, d_key=32) as case:
        assert case.useful_flop == 30 * (4 * 32 * 32 + 16 * 64)
    with native.Case("linear_attention_gradient", 1, seq_len=10, heads=3, d_key=32) as case:
        assert case.useful_flop == 30 * (10 * 32 * 32 + 16 * 5 * 32)


@pytest.mark.parametrize(
    "name, params, words",
    [
        ("no_such_case", {}, "no_such_case"),
        ("matmul", {"columns": 3}, "columns"),
        ("matmul", {"rows": 0}, "rows: want an integer of at least 1, got 0"),
        ("matmul", {"dtype": "f64"}, "dtype: want f32 or bf16 or int8 or int8-32 or "),
        ("linear_attention_forward", {"layout": "odd"}, "layout"),
        ("linear_attention_forward", {"chunk": 17}, "chunk_size"),
    ],
)
def test_wrong_parameters_are_named(name, params, words):
    with pytest.raises(ValueError, match=words):
        native.Case(name, 1, **params)


def test_limits_run_and_count_their_work():
    with native.Case("limit_fma", 1) as fma:
        wall, _ = fma.run(2)
        assert wall > 0 and fma.useful_flop > 1e6
    for name in ("limit_copy", "limit_read"):
        with native.Case(name, 2, bytes=1 << 22) as case:
            assert case.bytes == 1 << 22
            wall, _ = case.run(4)
            assert wall > 0
