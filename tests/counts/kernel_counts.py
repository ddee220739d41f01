"""Instruction counts of key kernels against stored ones: a kernel that got
slower shows without any timing.

  kernel_counts.py check DRIVER     compare with baselines.json (a ctest)
  kernel_counts.py update DRIVER    write the counts of this build there
  kernel_counts.py print DRIVER     count, compare with nothing

DRIVER is the program count_kernels of a Release build. The counts are those of
valgrind's callgrind on one SIMD target, the same on every machine that has it.
They depend on the compiler and on Highway, whose versions stand beside them:
where either differs, the check says so and ends as skipped (77), as it does
without valgrind.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BASELINES = pathlib.Path(__file__).resolve().with_name("baselines.json")
TARGET = "AVX2"  # the best one that valgrind decodes: it does not know AVX-512
TOLERANCE = 0.03  # either way; the counts themselves repeat to the instruction
UPDATE = "make counts-update"
SKIPPED = 77  # ctest's SKIP_RETURN_CODE

# Name: case of the kernel's benchmark, its parameters. Small shapes: valgrind
# takes some 50 times the time, and a fused multiply-add far more.
KERNELS = {
    "decay_attention_forward": ("decay_attention_forward", "seq_len=256 heads=1 d_key=64"),
    "decay_attention_forward_channel": (  # a gate for each channel
        "decay_attention_forward",
        "seq_len=256 heads=1 d_key=64 gate=channel",
    ),
    "decay_attention_gradient": ("decay_attention_gradient", "seq_len=256 heads=1 d_key=64"),
    "decay_attention_gradient_channel": (
        "decay_attention_gradient",
        "seq_len=256 heads=1 d_key=64 gate=channel",
    ),
    "decay_attention_step": ("decay_attention_step", "batch=4 heads=8 d_key=64"),
    "decay_gate_forward": ("decay_gate_forward", "rows=64 width=256"),
    "decay_gate_forward_bounded": (  # with keys
        "decay_gate_forward",
        "rows=64 width=256 form=bounded dtype=bf16",
    ),
    "decay_gate_gradient": ("decay_gate_gradient", "rows=64 width=256"),
    "delta_attention_forward": ("delta_attention_forward", "seq_len=256 heads=1 d_key=64"),
    "delta_attention_forward_channel": (
        "delta_attention_forward",
        "seq_len=256 heads=1 d_key=64 gate=channel",
    ),
    "delta_attention_gradient": ("delta_attention_gradient", "seq_len=256 heads=1 d_key=64"),
    "delta_attention_gradient_channel": (
        "delta_attention_gradient",
        "seq_len=256 heads=1 d_key=64 gate=channel",
    ),
    "delta_attention_step": ("delta_attention_step", "batch=4 heads=8 d_key=64"),
    "dplr_attention_forward": ("dplr_attention_forward", "seq_len=256 heads=1 d_key=64"),
    "dplr_attention_gradient": ("dplr_attention_gradient", "seq_len=256 heads=1 d_key=64"),
    "dplr_attention_step": ("dplr_attention_step", "batch=4 heads=8 d_key=64"),
    "elementwise_recurrence_forward": (
        "elementwise_recurrence_forward",
        "seq_len=256 channels=128",
    ),
    "elementwise_recurrence_gradient": (
        "elementwise_recurrence_gradient",
        "seq_len=256 channels=128",
    ),
    "selective_scan_forward": ("selective_scan_forward", "seq_len=64 channels=128"),
    "selective_scan_gradient": ("selective_scan_gradient", "seq_len=64 channels=128"),
    "cross_entropy_forward": ("cross_entropy_forward", "rows=16 classes=1024"),
    "cross_entropy_gradient": ("cross_entropy_gradient", "rows=16 classes=1024"),
    "entry_forms_forward": ("entry_forms_forward", "rows=64 width=256"),
    "entry_forms_gradient": ("entry_forms_gradient", "rows=64 width=256"),
    "entry_forms_gradient_sigmoid_bf16": (
        "entry_forms_gradient",
        "rows=64 width=256 form=sigmoid dtype=bf16",
    ),
    "entry_forms_gradient_power": ("entry_forms_gradient", "rows=64 width=256 form=power_gate"),
    "entry_forms_gradient_mixed": (  # with sums over rows
        "entry_forms_gradient",
        "rows=64 width=256 form=mixed_gate dtype=bf16",
    ),
    "gate_correction_forward": ("gate_correction_forward", "seq_len=64 heads=4 width=64"),
    "gate_correction_gradient": ("gate_correction_gradient", "seq_len=64 heads=4 width=64"),
    "gated_norm_forward": ("gated_norm_forward", "seq_len=64 groups=4 width=64"),
    "gated_norm_forward_first": (  # the gate before the norm
        "gated_norm_forward",
        "seq_len=64 groups=4 width=64 first=1",
    ),
    "gated_norm_gradient": ("gated_norm_gradient", "seq_len=64 groups=4 width=64"),
    "gemm": ("gemm", "rows=128 columns=128 depth=128"),
    "gemm_gradient": ("gemm", "rows=128 columns=128 depth=256 form=tn"),
    "head_scale_forward": ("head_scale_forward", "rows=64 heads=4 width=64"),
    "head_scale_gradient": ("head_scale_gradient", "rows=64 heads=4 width=64"),
    "layer_heads": ("layer_heads", "rows=128 width=64 gradient=1"),
    "layer_rest": ("layer_rest", "rows=128 width=64 hidden=128 gradient=1"),
    "linear_attention_forward_64": ("linear_attention_forward", "seq_len=256 heads=2 d_key=64"),
    "linear_attention_forward_128": ("linear_attention_forward", "seq_len=128 heads=1 d_key=128"),
    "linear_attention_forward_bf16": (
        "linear_attention_forward",
        "seq_len=256 heads=2 d_key=64 dtype=bf16",
    ),
    "linear_attention_noncausal": (
        "linear_attention_forward",
        "seq_len=256 heads=2 d_key=64 causal=0",
    ),
    "linear_attention_gradient_64": ("linear_attention_gradient", "seq_len=256 heads=2 d_key=64"),
    "linear_attention_gradient_short": (  # one chunk, no state
        "linear_attention_gradient",
        "seq_len=32 heads=8 d_key=64",
    ),
    "linear_attention_step": ("linear_attention_step", "batch=4 heads=8 d_key=64"),
    "mlstm_gates_forward": ("mlstm_gates_forward", "batch=1 seq_len=64 heads=8"),
    "mlstm_gates_gradient": ("mlstm_gates_gradient", "batch=1 seq_len=64 heads=8"),
    "mlstm_read_forward": ("mlstm_read_forward", "rows=64 width=256"),
    "mlstm_read_gradient": ("mlstm_read_gradient", "rows=64 width=256"),
    "rg_lru_forward": ("rg_lru_forward", "rows=64 width=256"),
    "rg_lru_gradient": ("rg_lru_gradient", "rows=64 width=256 dtype=bf16"),
    "logistic_mixture_gradient": ("logistic_mixture_gradient", "rows=256 mixtures=10"),
    "matmul_prefill": ("matmul", "rows=64 inputs=256 outputs=256"),
    "matmul_decode_bf16": ("matmul", "rows=1 inputs=1024 outputs=512 dtype=bf16"),
    "short_convolution_forward": ("short_convolution_forward", "seq_len=256 channels=128"),
    "short_convolution_gradient": ("short_convolution_gradient", "seq_len=256 channels=128"),
    "softmax_attention_forward": ("softmax_attention_forward", "seq_len=256 heads=1 d_key=64"),
    "softmax_attention_gradient": ("softmax_attention_gradient", "seq_len=256 heads=1 d_key=64"),
    "softmax_attention_step": ("softmax_attention_step", "seq_len=512 heads=4 d_key=64"),
    "softmax_attention_step_bf16": (
        "softmax_attention_step",
        "seq_len=512 heads=4 d_key=64 cache=1",
    ),
    "softmax_attention_step_int8": (
        "softmax_attention_step",
        "seq_len=512 heads=4 d_key=64 cache=2",
    ),
    "layer_step": ("layer_step", "rows=1 layers=4 width=128 heads=4 hidden=512"),
    "rotary_rows": ("rotary_rows", "seq_len=64 heads=4 d_key=64"),
    "rotary_rows_interleaved": (
        "rotary_rows",
        "seq_len=64 heads=4 d_key=64 interleaved=1 dtype=bf16",
    ),
    "row_mixes_forward": ("row_mixes_forward", "rows=64 width=256"),
    "row_mixes_gradient": ("row_mixes_gradient", "rows=64 width=256"),
    "row_mixes_gradient_bf16": ("row_mixes_gradient", "rows=64 width=256 dtype=bf16"),
    "row_product": ("row_product", "rows=1 inputs=512 outputs=512"),
    "residual_norm": ("residual_norm_forward", "rows=128 width=256"),
    "residual_rms_norm": ("residual_norm_forward", "rows=128 width=256 kind=rms"),
    "swiglu": ("swiglu_forward", "rows=128 width=512"),
    "token_shift_forward": ("token_shift_forward", "batch=1 seq_len=64 width=256"),
    "token_shift_gradient": ("token_shift_gradient", "batch=1 seq_len=64 width=256"),
    "row_argmax": ("row_argmax", "count=50280"),
    "unit_norm_forward": ("unit_norm_forward", "rows=64 heads=4 width=64"),
    "unit_norm_gradient": ("unit_norm_gradient", "rows=64 heads=4 width=64"),
    "bias_activation": ("bias_activation_forward", "rows=128 width=512"),
    "aft_simple_forward": ("aft_simple_forward", "batch=1 seq_len=128 channels=256"),
    "aft_simple_gradient": ("aft_simple_gradient", "batch=1 seq_len=128 channels=256"),
    "aft_simple_step": ("aft_simple_step", "batch=8 channels=256"),
    "adam_step": ("adam_step", "count=100000"),
}


class CountError(Exception):
    """A program that failed, with its message."""


def environment():
    """The driver's environment: one SIMD target, no tuning of the C library's allocator."""
    kept = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    return kept | {"TARN_FORCE_TARGET": TARGET.lower()}


def run(command):
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CountError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def about(driver):
    """Compiler, Highway and target of the build, as the driver names them."""
    return run([driver, "--about"]).strip()


def count(driver, name):
    """Instructions of one run of a kernel."""
    case, parameters = KERNELS[name]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "counts")
        run(
            [
                "valgrind",
                "--tool=callgrind",
                "--toggle-collect=CountedRun",
                f"--callgrind-out-file={out}",
                driver,
                case,
                parameters,
            ]
        )
        return total(out.read_text())


def total(profile):
    """Number of instructions in a callgrind profile; at least one."""
    found = re.search(r"^(?:totals|summary): (\d+)", profile, re.MULTILINE)
    instructions = int(found[1]) if found else 0
    if instructions == 0:
        raise CountError("callgrind counted nothing: it did not see CountedRun")
    return instructions


def count_all(driver):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = pool.map(lambda name: count(driver, name), KERNELS)
        return dict(zip(KERNELS, counts))


def compare(counts, baselines):
    """Lines for people, and whether every count is within the tolerance."""
    lines, good = [], True
    for name in sorted(counts.keys() | baselines.keys()):
        counted, stored = counts.get(name), baselines.get(name)
        if counted is None or stored is None:
            good = False
            missing = "baseline" if stored is None else "such kernel any more"
            lines.append(f"{name}: no {missing}. Run `{UPDATE}`.")
            continue
        change = counted / stored - 1
        line = f"{name}: {counted} instructions, baseline {stored} ({change:+.1%})"
        if abs(counted - stored) > TOLERANCE * stored:
            good = False
            line += (
                ": SLOWER. Find out why; if it is meant, run"
                if change > 0
                else ": faster. Keep it: run"
            )
            line += f" `{UPDATE}` and commit {BASELINES.name}."
        lines.append(line)
    return lines, good


def reason_to_skip(build, sanitizers):
    """Why this build or machine cannot be counted; None where it can."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed (scripts/setup.sh installs it)"
    if sanitizers:
        return f"sanitizers are on ({sanitizers}); counts are of Release builds"
    if build != "Release":
        return f"this is a {build or 'nameless'} build; counts are of Release"
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    if not {"avx2", "fma", "bmi2", "f16c"} <= set(flags):
        return f"this machine has no {TARGET}"
    return None


def check(driver):
    stored = json.loads(BASELINES.read_text())
    here = about(driver)
    if here != stored["made_with"]:
        print(
            f"skipped: the counts are of {stored['made_with']}, this build "
            f"is of {here}. `{UPDATE}` makes them this build's."
        )
        return SKIPPED
    lines, good = compare(count_all(driver), stored["instructions"])
    print("\n".join(lines))
    return 0 if good else 1


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("action", choices=["check", "update", "print"])
    parser.add_argument("driver")
    parser.add_argument("--build", default="Release", help="CMAKE_BUILD_TYPE")
    parser.add_argument("--sanitizers", default="", help="TARN_SANITIZE")
    arguments = parser.parse_args()
    reason = reason_to_skip(arguments.build, arguments.sanitizers)
    if reason is not None:
        print(f"skipped: {reason}")
        return SKIPPED
    try:
        if arguments.action == "check":
            return check(arguments.driver)
        made = {"made_with": about(arguments.driver), "instructions": count_all(arguments.driver)}
    except CountError as error:
        print(error)
        return 1
    text = json.dumps(made, indent=2) + "\n"
    if arguments.action == "update":
        BASELINES.write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
