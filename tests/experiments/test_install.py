"""`tarn experiment` of an installed tree that was moved: no checkout around."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

BUILD = pathlib.Path(os.environ.get("TARN_BUILD") or "absent")
WANTED = ("tarn", "tarn-train", "tarn-experiment", "libtarn_pytorch.so", "libtarn_bench.so")


@pytest.mark.skipif(
    not all((BUILD / one).exists() for one in WANTED), reason="this build is not complete"
)
def test_installed_tree(tmp_path):
    for component in ("runtime", "training"):
        subprocess.run(
            ["cmake", "--install", BUILD, "--prefix", tmp_path / "first", "--component", component],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    prefix = tmp_path / "moved"
    shutil.move(tmp_path / "first", prefix)
    hidden = ("PYTHONPATH", "TARN_BUILD", "TARN_LIBRARY", "TARN_PROGRAMS", "TARN_DATA")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    environment["TARN_PYTHON"] = sys.executable

    def run(*words, **more):
        return subprocess.run(
            [prefix / "bin" / "tarn", "experiment", *words],
            cwd=tmp_path,
            env=environment | more,
            capture_output=True,
            text=True,
        )

    listed = run("list")
    assert listed.returncode == 0, listed.stderr
    assert {"scaling", "copy", "long"} <= set(listed.stdout.split())
    assert run("nonsense").returncode == 2
    missing = run("list", TARN_PYTHON="no-such-python")
    assert missing.returncode == 1 and "want a Python with torch" in missing.stderr

    # The limits of the machine come from the installed library.
    code = "from experiments.core.machine import facts; print(facts(1)['read_gbs'] > 0)"
    launcher = (prefix / "bin" / "tarn-experiment").read_text()
    script = tmp_path / "moved" / "bin" / "facts"
    script.write_text(launcher.replace("-m experiments", f'-c "{code}"'))
    script.chmod(0o755)
    done = subprocess.run([script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr
