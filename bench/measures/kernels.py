"""Every kernel at a usual shape against the machine's limits, in and out of
cache, with one thread and with all."""

import harness
import limits
import native
import results

# case, parameters; {} stands for the defaults of the case's file.
CASES = [
    ("linear_attention_step", {"batch": 1, "heads": 8}),
    ("linear_attention_step", {"batch": 4096, "heads": 16}),
    ("linear_attention_prefill", {"seq_len": 512}),
    ("linear_attention_prefill", {"seq_len": 512, "d_key": 32}),
    ("matmul", {"rows": 1, "inputs": 256, "outputs": 1024}),
    ("matmul", {"rows": 1, "inputs": 4096, "outputs": 16384}),
    ("matmul", {"rows": 1, "inputs": 4096, "outputs": 16384, "dtype": "bf16"}),
    ("matmul", {"rows": 16, "inputs": 1024, "outputs": 4096}),
    ("matmul", {"rows": 256, "inputs": 1024, "outputs": 1024}),
    ("matmul", {"rows": 512, "inputs": 1024, "outputs": 4096}),
    ("matmul", {"rows": 512, "inputs": 4096, "outputs": 1024}),
    ("softmax_attention_forward", {"seq_len": 1024}),
    ("softmax_attention_forward", {"seq_len": 4096, "local_context": 128}),
    ("softmax_attention_gradient", {"seq_len": 1024}),
    ("softmax_attention_step", {"seq_len": 4096}),
    ("softmax_attention_step", {"seq_len": 131072}),
]

# Kernels that have a length in place of rows.
_OF_SEQUENCES = (
    "cluster_queries",
    "decay_attention",
    "delta_attention",
    "dplr_attention",
    "elementwise_recurrence",
    "gate_correction",
    "gated_norm",
    "hash_buckets",
    "mlstm_gates",
    "reformer_bias",
    "rotary_rows",
    "selective_scan",
    "short_convolution",
    "token_shift",
)


def _small(name, params, ctx):
    """The same case cut down, for the smoke test."""
    if not ctx.quick:
        return params
    if not params:
        if name in ("adam_step", "row_argmax"):
            return {"count": 1000}
        if name.startswith("moe"):
            return {"tokens": 64}
        # Cases of sequences are cut by batch or length, the others by their rows.
        if name.startswith(_OF_SEQUENCES):
            return {"seq_len": 64}
        return {"batch": 1} if name.startswith("aft_simple") else {"rows": 64}
    most = {"batch": 8, "seq_len": 64, "rows": 8, "inputs": 64, "outputs": 64}
    return {k: min(v, most.get(k, v)) if k in most else v for k, v in params.items()}


def _cases(ctx):
    known = set(native.case_names())
    named = {name for name, _ in CASES}
    yield from CASES
    done = named | {n for n in known if n.startswith(("limit_", "linear_attention"))}
    for name in sorted(known - done):  # also kernels that were added since
        yield name, {}


def measure(ctx):
    table = results.Table(
        "kernels",
        "Kernels",
        "float32 unless dtype is given. Percent of the larger of two limits: FLOP at the "
        "multiply-add peak, bytes at the copy bandwidth of a buffer of that size; above 100 % "
        "if a kernel only reads, or stays in cache.",
    )
    for name, params in _cases(ctx):
        for threads in sorted({1, ctx.threads}):
            with native.Case(name, threads, **_small(name, params, ctx)) as case:
                sides = [harness.of_case(case), limits.sgemm_side(threads)]
                samples, limit = limits.group(sides, min(ctx.rounds, 7), case.bytes, threads)
                table.rows.append(limits.row(sides[0], samples["tarn"], limit, samples["sgemm"]))
    return table
