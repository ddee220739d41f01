#!/usr/bin/env bash
# scripts/cuda_check.sh test|bench [ARGUMENT...]: the tests of the operators on a CUDA
# device (arguments go to pytest), or their benchmark (to bench/cuda.py), whose results
# are BUILD/cuda.json. Builds the operators first, in BUILD (build-cuda), with nvcc and
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
  bench)
    results=${BUILD:-build-cuda}/cuda.json
    mkdir -p "$(dirname "$results")"
    exec "$python" bench/cuda.py --json "$results" "$@" ;;
  *) echo "cuda_check: want test or bench, got $what" >&2; exit 2 ;;
esac
