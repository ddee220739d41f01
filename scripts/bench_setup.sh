#!/usr/bin/env bash
# Makes .venv-peers, in which the benchmarks against other implementations run:
# the peers of requirements-peers.txt, with the torch that tarn was built with.
# Skips in a fraction of a second when everything is there; the first run
# compiles fast-transformers, about 6 minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

base=${TARN_PYTHON:-.venv/bin/python}
if ! command -v "$base" >/dev/null; then
  echo "bench_setup: want $base (run \`make setup\`), got no such program" >&2
  exit 1
fi
# What the environment was made from: a new torch or Python needs a new one.
facts=$("$base" -c '
import importlib.metadata, sys, sysconfig
print(sys.version.split()[0], importlib.metadata.version("torch"))
print(sysconfig.get_path("purelib"))
print(sysconfig.get_path("platlib"))')
wanted=$(printf '%s\n' "$facts" "$PWD"; cat requirements-peers.txt)
stamp=.venv-peers/.tarn-setup
tuned=.venv-peers/tuned # the causal product, compiled for each SIMD target
made() { [ "$wanted" = "$(cat "$stamp" 2>/dev/null)" ]; }
made && [ -f "$tuned/avx2/causal_product_avx2.so" ] && exit 0

python=$PWD/.venv-peers/bin/python
# The set-up of fast-transformers requires CUDA sources if it finds an nvcc.
path=
IFS=: read -ra folders <<< "$PATH"
for folder in "${folders[@]}"; do
  [ -x "$folder/nvcc" ] || path=${path:+$path:}$folder
done
export MAX_JOBS=${MAX_JOBS:-$(nproc)}
pip() {
  PATH=$path "$python" -m pip "$@"
}

if ! made; then
  echo "bench_setup: building the peers in .venv-peers (about 6 minutes)" >&2
  "$base" -m venv --clear .venv-peers
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # torch is found in the base's folders, which come after the peers' own.
  { printf '%s\n' "$facts" | tail -n +2 | sort -u; echo "$PWD/python"; } \
    > "$site/tarn-bench.pth"
  tools=$(grep -E '^(setuptools|wheel)' requirements-peers.txt)
  # shellcheck disable=SC2086
  pip install --quiet --disable-pip-version-check ${TARN_PIP_ARGS:-} $tools >&2
  # shellcheck disable=SC2086
  pip install --quiet --disable-pip-version-check ${TARN_PIP_ARGS:-} \
    --no-build-isolation -r requirements-peers.txt >&2
  "$python" -c 'import fast_transformers.causal_product' # it was compiled
  printf '%s\n' "$wanted" > "$stamp"
fi

# fast-transformers' flags name no instruction set: what pip installs runs on SSE2. The causal
# product is compiled again for each instruction set that tarn is measured on.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# shellcheck disable=SC2086
pip download --quiet --disable-pip-version-check ${TARN_PIP_ARGS:-} --no-deps \
  --no-binary :all: --no-build-isolation --dest "$folder" \
  "$(grep '^pytorch-fast' requirements-peers.txt)" >&2
tar -xf "$folder"/*.tar.gz -C "$folder" --strip-components=1
PATH=$path "$python" bench/build_causal_product.py \
  "$folder/fast_transformers/causal_product/causal_product_cpu.cpp" "$tuned" >&2
