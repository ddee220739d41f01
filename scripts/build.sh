#!/usr/bin/env bash
# scripts/build.sh DIRECTORY PRESET [TARGET...]: configures once, then builds what
# changed: these targets, or everything.
set -euo pipefail
cd "$(dirname "$0")/.."
directory=$1 preset=$2
shift 2
log=$(mktemp)
trap 'rm -f "$log"' EXIT

arguments=(-B "$directory")
if [ -n "${TARN_PYTHON:-}" ]; then arguments+=("-DTARN_PYTHON=$TARN_PYTHON"); fi
# A tree that was configured for another Python is configured again.
wanted=${TARN_PYTHON:-$PWD/.venv/bin/python}
if [ -f "$directory/CMakeCache.txt" ] && [ "$preset" = release ] &&
   ! grep -q "^TARN_PYTHON:FILEPATH=$wanted\$" "$directory/CMakeCache.txt"; then
  rm -f "$directory/CMakeCache.txt"
fi
# So is one that holds `make runtime` alone, unless that is asked for.
if [ "$preset" = release ] &&
   grep -qs '^TARN_NATIVE:BOOL=ON$' "$directory/CMakeCache.txt"; then
  rm -f "$directory/CMakeCache.txt"
fi
if [ ! -f "$directory/build.ninja" ] || [ ! -f "$directory/CMakeCache.txt" ]; then
  if ! cmake --preset "$preset" "${arguments[@]}" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
  fi
fi
# Compilers take and drop hundreds of MiB: they keep what they freed, in huge pages.
export MALLOC_TRIM_THRESHOLD_=1000000000 MALLOC_MMAP_THRESHOLD_=33554432
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}
# One compiler per core: more of them would share caches and take longer in all.
jobs=$(nproc)
if [ -t 2 ]; then
  ninja -j "$jobs" -C "$directory" "$@" >&2
elif ! ninja -j "$jobs" -C "$directory" "$@" >"$log" 2>&1; then
  tail -n 100 "$log" >&2
  exit 1
fi
