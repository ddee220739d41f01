"""fast-transformers 0.4.0 (idiap, 2021) as its users call it, and its bare
causal product. Needs .venv-peers (scripts/bench_setup.sh).

Two builds of the causal product: "as installed" from PyPI, whose flags name no
instruction set (SSE2), and "tuned", compiled for the set that tarn runs on.
"""

import importlib.metadata
import importlib.util
import pathlib
import sys
import sysconfig

import harness
import torch

INSTALLED, TUNED = "fast-transformers", "fast-transformers, tuned build"


def version():
    return importlib.metadata.version("pytorch-fast-transformers")


def build():
    """How the two builds were made, for the report."""
    flags = sysconfig.get_config_var("CFLAGS").split()
    kept = " ".join(flag for flag in flags if flag.startswith(("-O", "-m", "-f")))
    return (
        f"as installed by pip ({kept} -fopenmp -ffast-math); tuned: -O3 -fopenmp -ffast-math and -march=native "
        "(-march=x86-64-v3 on AVX2)"
    )


def _tuned(target):
    """The causal product's module for a SIMD target."""
    built = "native" if target == "AVX3" else "avx2"
    name = f"causal_product_{built}"
    path = pathlib.Path(sys.prefix) / "tuned" / built / f"{name}.so"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def causal_product(name, target):
    """The module of a build: INSTALLED or TUNED."""
    if name == TUNED:
        return _tuned(target)
    from fast_transformers.causal_product import causal_product_cpu

    return causal_product_cpu


def use_causal_product(name, target):
    """Makes the peer's layers call one build from now on."""
    from fast_transformers.causal_product import CausalDotProduct

    module = causal_product(name, target)
    CausalDotProduct.dot["cpu"] = module.causal_dot_product
    CausalDotProduct.dot_backward["cpu"] = module.causal_dot_backward


def causal_product_sides(kind, batch, heads, seq_len, width, threads, target):
    """Both builds' bare causal product, "forward" or "gradient": no feature
    map, no denominator, results in place, in its own layout [N, H, L, E]."""
    shape = (batch, heads, seq_len, width)
    q, k, v, grad_out = (torch.rand(shape) * 1e-3 for _ in range(4))
    results = [torch.zeros(shape) for _ in range(3)]
    facts = {"batch": batch, "heads": heads, "seq_len": seq_len, "d_key": width}

    def side(name):
        module = causal_product(name, target)
        if kind == "forward":
            call = lambda: module.causal_dot_product(q, k, v, results[0])
        else:
            call = lambda: module.causal_dot_backward(q, k, v, grad_out, *results)
        return harness.of_call(name, call, threads, facts=facts)

    return [side(INSTALLED), side(TUNED)]


def check_causal_product(target):
    """Checks that both sides compute the same, tarn without map and denominator."""
    import tarn

    q, k, v = (torch.randn(2, 3, 50, 32) for _ in range(3))
    ours = tarn.ops.linear_attention(
        *(x.transpose(1, 2) for x in (q, k, v)),
        feature_map="identity",
        denominator="none",
    ).transpose(1, 2)
    for name in (INSTALLED, TUNED):
        theirs = torch.zeros_like(v)
        causal_product(name, target).causal_dot_product(q, k, v, theirs)
        error = (ours - theirs).abs().max() / theirs.abs().max()
        if not error < 1e-5:
            raise SystemExit(f"{name} differs from tarn: {error}")
