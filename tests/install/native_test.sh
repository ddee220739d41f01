#!/usr/bin/env bash
# native_test.sh SOURCE BUILD: builds the program for this machine's SIMD target, as
# `make runtime` does, and lets it write with the model in the clone.
set -euo pipefail
source=$1 build=$2
# -O1: whether it configures, compiles for one target and runs does not depend on the
# level, and most of the test's time does.
if [ ! -f "$build/CMakeCache.txt" ]; then
  cmake -S "$source" --preset native -B "$build" \
    -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" >/dev/null
fi
bash "$source/scripts/build.sh" "$build" native tarn
grep -q '^TARN_NATIVE:BOOL=ON$' "$build/CMakeCache.txt"
"$build/tarn" --version
text=$("$build/tarn" generate "$source/examples/fortunes" --prompt "A " --seed 1 --max-tokens 200)
[ "${#text}" -gt 100 ]
# One target alone.
! TARN_FORCE_TARGET=sse4 "$build/tarn" --version 2>/dev/null | grep -qi '(sse4)'
