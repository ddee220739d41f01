#!/usr/bin/env bash
# Makes .venv-peers, in which the benchmarks against other implementations run:
# the peers of requirements-peers.txt, with the torch that tarn was built with.
# Skips in a fraction of a second when everything is there; the first run
# compiles fast-transformers and llama.cpp, about 15 minutes on two cores.
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
llama=.venv-peers/llama.cpp # its converter; no-amx/: its library, built again
amx=$(grep -m1 -ow amx_int8 /proc/cpuinfo || true)
made() { [ "$wanted" = "$(cat "$stamp" 2>/dev/null)" ]; }
made_tuned() { [ -f "$tuned/avx2/causal_product_avx2.so" ]; }
made_llama() {
  [ -f "$llama/convert_hf_to_gguf.py" ] && { [ -z "$amx" ] || [ -f "$llama/no-amx/libllama.so" ]; }
}
made && made_tuned && made_llama && exit 0

python=$PWD/.venv-peers/bin/python
# The set-up of fast-transformers requires CUDA sources if it finds an nvcc.
path=
IFS=: read -ra folders <<< "$PATH"
for folder in "${folders[@]}"; do
  [ -x "$folder/nvcc" ] || path=${path:+$path:}$folder
done
export MAX_JOBS=${MAX_JOBS:-$(nproc)}
# Of llama.cpp: the instruction set of this machine, no reader of pictures.
export CMAKE_BUILD_PARALLEL_LEVEL=$MAX_JOBS
export CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF"
pip() {
  PATH=$path "$python" -m pip "$@"
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The source distribution of a package of requirements-peers.txt, unpacked into $folder/$1.
source_of() {
  # shellcheck disable=SC2086
  pip download --quiet --disable-pip-version-check ${TARN_PIP_ARGS:-} --no-deps \
    --no-binary :all: --no-build-isolation --dest "$folder/$1.sdist" \
    "$(grep "^$1" requirements-peers.txt)" >&2
  mkdir "$folder/$1"
  tar -xf "$folder/$1.sdist"/*.tar.gz -C "$folder/$1" --strip-components=1
}

if ! made; then
  echo "bench_setup: building the peers in .venv-peers (about 15 minutes)" >&2
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
  "$python" -c 'import fast_transformers.causal_product, llama_cpp' # both were compiled
  printf '%s\n' "$wanted" > "$stamp"
fi

# fast-transformers' flags name no instruction set: what pip installs runs on SSE2. The causal
# product is compiled again for each instruction set that tarn is measured on.
if ! made_tuned; then
  source_of pytorch-fast
  PATH=$path "$python" bench/build_causal_product.py \
    "$folder/pytorch-fast/fast_transformers/causal_product/causal_product_cpu.cpp" "$tuned" >&2
fi

made_llama && exit 0
source_of llama-cpp-python
sources=$folder/llama-cpp-python/vendor/llama.cpp
mkdir -p "$llama"
if [ -n "$amx" ]; then
  # -march=native cannot be had without AMX, so that this build names what the machine has
  # next to AVX2, which is on by itself.
  switches=()
  for pair in avx_vnni=AVX_VNNI avx512f=AVX512 avx512vbmi=AVX512_VBMI avx512_vnni=AVX512_VNNI \
    avx512_bf16=AVX512_BF16; do
    if grep -qw "${pair%=*}" /proc/cpuinfo; then switches+=("-DGGML_${pair#*=}=ON"); fi
  done
  cmake -S "$sources" -B "$folder/no-amx" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
    -DGGML_NATIVE=OFF "${switches[@]}" -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON \
    -DCMAKE_INSTALL_RPATH='$ORIGIN' -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF >&2
  cmake --build "$folder/no-amx" --target llama >&2
  mkdir -p "$llama/no-amx"
  cp -P "$folder"/no-amx/bin/*.so* "$llama/no-amx/"
fi
# Its vocabularies have texts and ids, with which tests/tokenizers compare: TARN_LLAMA_CPP.
for part in conversion gguf-py models; do
  rm -rf "${llama:?}/$part"
  cp -r "$sources/$part" "$llama/"
done
cp "$sources/convert_hf_to_gguf.py" "$llama/" # last: it says that all of this is there
