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
# One compiler per core: more of them would share caches and take longer in all.
jobs=$(nproc)
if [ -t 2 ]; then
  ninja -j "$jobs" -C "$directory" "$@" >&2
elif ! ninja -j "$jobs" -C "$directory" "$@" >"$log" 2>&1; then
  tail -n 100 "$log" >&2
  exit 1
fi
