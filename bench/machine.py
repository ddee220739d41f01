"""The machine and the software that a result was measured with."""

import datetime
import os
import pathlib
import platform
import subprocess

import torch

import native


def _cpu():
    facts = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    name = facts.get("model name", platform.machine())
    return f"{name} (family {facts.get('cpu family')}, model {facts.get('model')})"


def _caches():
    sizes = []
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (
            (index / name).read_text().strip() for name in ("level", "type", "size")
        )
        sizes.append(f"L{level}{kind[0].lower() if level == '1' else ''} {size}")
    return ", ".join(sizes)


def _commit():
    done = subprocess.run(
        ["git", "-C", str(native.ROOT), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() or "unknown"


def facts():
    """The facts that are stored with every table."""
    build = [line.strip(" -") for line in torch.__config__.show().splitlines()]
    kept = ("Intel(R) oneAPI", "Intel(R) MKL", "OpenMP", "CPU capability")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "caches": _caches(),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "target": native.simd_target(),
        "torch": torch.__version__,
        "torch_build": [line for line in build if line.startswith(kept)],
    }


def peer_facts():
    import peer_fast_transformers as peer

    return {"fast_transformers": peer.version(), "fast_transformers_build": peer.build()}
