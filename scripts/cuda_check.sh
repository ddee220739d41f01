#!/usr/bin/env bash
# scripts/cuda_check.sh test|sanitize|bench [ARGUMENT...]: the tests of the operators on a
# CUDA device (arguments go to pytest), some of them under compute-sanitizer (the same), or
# their benchmark (to bench/cuda.py), whose results are BUILD/cuda.json. Builds the operators first, in BUILD (build-cuda), with nvcc and
# TARN_PYTHON's torch, unless TARN_LIBRARY names a library that is built.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-test}
[ $# -gt 0 ] && shift
python=${TARN_PYTHON:-$PWD/.venv/bin/python}
if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  echo "cuda_check: want a torch that sees a CUDA device, got that of $python" >&2
  echo "  (name another Python with TARN_PYTHON)" >&2
  exit 1
fi
if [ -z "${TARN_LIBRARY:-}" ]; then
  build=${BUILD:-build-cuda}
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTARN_CUDA=ON \
    -DTARN_PYTHON="$python" -DTARN_BUILD_TESTS=OFF -DTARN_BUILD_BENCH=OFF >/dev/null
  cmake --build "$build" --target tarn_pytorch
  TARN_LIBRARY=$(find "$PWD/$build" -maxdepth 2 -name libtarn_pytorch.so | head -1)
fi
export TARN_LIBRARY PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$PWD/python${PYTHONPATH:+:$PYTHONPATH}
case $what in
  test) exec "$python" -m pytest -q -p no:cacheprovider tests/python/cuda "$@" ;;
  sanitize)
    # Each tensor has its own memory, so that a neighbour's does not hide a write.
    export PYTORCH_NO_CUDA_MEMORY_CACHING=1
    [ $# -gt 0 ] || set -- tests/python/cuda/test_cuda_results.py -k "lengths and (65 or 257) or packed"
    for tool in memcheck racecheck; do
      echo "compute-sanitizer: $tool"
      compute-sanitizer --tool "$tool" --kernel-name kns=tarn --error-exitcode 1 \
        "$python" -m pytest -q -x -p no:cacheprovider "$@"
    done ;;
  bench)
    results=${BUILD:-build-cuda}/cuda.json
    mkdir -p "$(dirname "$results")"
    exec "$python" bench/cuda.py --json "$results" "$@" ;;
  *) echo "cuda_check: want test, sanitize or bench, got $what" >&2; exit 2 ;;
esac
