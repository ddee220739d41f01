"""The programs of examples/distributed/ with 2 and 4 processes, and the manifests of
examples/cluster/: that they can be read and say what the trainer understands."""

import re
import subprocess
import sys

import pytest
import yaml
from conftest import BUILD, ROOT

FOLDER = ROOT / "examples" / "distributed"
CLUSTER = ROOT / "examples" / "cluster"


def torchrun(size, program, *arguments):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(size),
            str(FOLDER / program),
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses(text, size):
    found = re.findall(rf"step \d+: loss ([0-9.]+) on {size} ranks", text)
    assert len(found) == 2, text
    return [float(one) for one in found]


@pytest.mark.parametrize("size", [2, 4])
def test_ddp_learns(size):
    first, last = losses(torchrun(size, "ddp.py", "--steps", 100, "--rows", 16), size)
    assert last < first


def test_fsdp_resumes_where_another_number_of_ranks_saved(tmp_path):
    saved = tmp_path / "saved"
    first = losses(torchrun(2, "fsdp.py", "--checkpoint", saved), 2)
    assert first[1] < first[0]
    again = losses(torchrun(4, "fsdp.py", "--checkpoint", saved), 4)
    assert again[0] < first[1], "it begins from what was saved"


@pytest.mark.parametrize("size", [2, 4])
def test_a_long_sequence_over_ranks(size):
    text = torchrun(size, "long_sequence.py", "--tokens", 4096, "--check")
    difference = re.search(r"largest difference ([0-9.e+-]+)", text)
    assert difference and float(difference[1]) < 1e-4, text
    # 4 heads of 32 x 33 float32 numbers, for any length.
    assert text.count(" 16,896 bytes to each of the others") == size


@pytest.fixture(scope="module")
def trainer_help():
    program = subprocess.run(
        [str(BUILD / "tarn-train"), "--help"], capture_output=True, text=True, timeout=60
    )
    assert program.returncode == 0
    return set(re.findall(r"--[a-z][a-z-]+", program.stdout))


def test_kubernetes_manifest():
    service, job = yaml.safe_load_all((CLUSTER / "kubernetes.yaml").read_text())
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    spec = job["spec"]
    assert spec["completions"] == spec["parallelism"]
    container = spec["template"]["spec"]["containers"][0]
    args = container["args"]
    assert f"--nnodes={spec['completions']}" in args
    assert args[args.index("-m") + 1] == "tarn.train"
    # The first pod is found by the name of the service.
    assert any(service["metadata"]["name"] in one for one in args if "endpoint" in one)
    volumes = {one["name"] for one in spec["template"]["spec"]["volumes"]}
    assert {one["name"] for one in container["volumeMounts"]} <= volumes


def test_slurm_script():
    script = CLUSTER / "slurm.sh"
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "-m tarn.train" in script.read_text()


@pytest.mark.parametrize("name", ["kubernetes.yaml", "slurm.sh"])
def test_manifests_use_flags_of_the_trainer(name, trainer_help):
    own = (CLUSTER / name).read_text().rsplit("tarn.train", 1)[1]  # what comes before is torchrun's
    used = set(re.findall(r"--[a-z][a-z-]+", own))
    assert used and used <= trainer_help, used - trainer_help
