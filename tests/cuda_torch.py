"""A CUDA build of torch without a CUDA toolkit: tarn configures and compiles.

Fakes such a torch from the one at hand: same headers and libraries, a version
that says CUDA, and CMake files that end in an error as they do where the
toolkit is missing. tarn must not read those, and must link libtorch,
libtorch_cpu and libc10 alone. Usage: cuda_torch.py SOURCE PYTHON
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

source, python = sys.argv[1:]
find = [
    python,
    "-c",
    "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])",
]
real = pathlib.Path(subprocess.check_output(find, text=True).strip())


def fake_torch(folder: pathlib.Path) -> pathlib.Path:
    torch = folder / "site" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("")
    (torch / "version.py").write_text("__version__ = '2.11.0+cu130'\ncuda = '13.0'\n")
    (torch / "include").symlink_to(real / "include")
    (torch / "lib").symlink_to(real / "lib")
    for package in ("Torch", "Caffe2"):
        cmake = torch / "share" / "cmake" / package
        cmake.mkdir(parents=True)
        (cmake / f"{package}Config.cmake").write_text(
            'message(FATAL_ERROR "the CUDA toolkit is missing")\n'
        )
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="{folder / "site"}" exec "{python}" "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


def run(*command):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}")
    return done.stdout


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    build = folder / "build"
    wrapper = fake_torch(folder)
    out = run(
        "cmake",
        "-G",
        "Ninja",
        "-S",
        source,
        "-B",
        str(build),
        f"-DTARN_PYTHON={wrapper}",
        "-DTARN_BUILD_TESTS=OFF",
        "-DTARN_BUILD_BENCH=OFF",
        "-DTARN_BATCHES=OFF",
    )
    assert "torch 2.11.0" in out, out
    # One operator file shows that the headers are found; the link line is read.
    run("ninja", "-C", str(build), "src/torch_ops/CMakeFiles/tarn_pytorch.dir/common/library.cc.o")
    commands = run("ninja", "-C", str(build), "-t", "commands", "libtarn_pytorch.so").splitlines()
    link = [line for line in commands if " -shared " in line][-1]
    for library in ("libtorch.so", "libtorch_cpu.so", "libc10.so"):
        assert f"torch/lib/{library}" in link, link
    # The folder meant for CUDA kernels holds their stub.
    ours = (str(folder).lower(), "/cuda/kernels_stub")
    named = link.lower()
    for word in ours:
        named = named.replace(word, "")
    assert "cuda" not in named, link
    # The check can fail: an older torch is refused with one clear line.
    version = folder / "site" / "torch" / "version.py"
    version.write_text("__version__ = '2.10.1'\n")
    refused = subprocess.run(
        ["cmake", "-S", source, "-B", str(build)], text=True, capture_output=True
    )
    assert refused.returncode != 0 and "want 2.11 or newer, got 2.10.1" in refused.stderr, (
        refused.stderr
    )
    shutil.rmtree(build)
print(
    "CUDA build of torch without a toolkit: configured, compiled, linked to the CPU libraries alone"
)
