#!/bin/bash
# lean_test.sh TARN LIBTARN: neither depends on torch, Python or OpenMP, and the
# library exports the C interface alone.
set -euo pipefail
for file in "$1" "$2"; do
  # ldd follows dependencies of dependencies; readelf works where ldd does not.
  needed=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  [ -n "$needed" ] || { echo "$file: no dynamic section read"; exit 1; }
  if printf '%s\n' "$needed" "$(ldd "$file")" |
     grep -iE 'torch|libc10|python|gomp|libomp|iomp|\<mkl|openblas'; then
    echo "$file: depends on the library above"
    exit 1
  fi
done
exported=$(nm -D --defined-only "$2" | awk '{print $3}')
[ "$(grep -c '^tarn_' <<<"$exported")" -ge 25 ] || { echo "$2: exports too little"; exit 1; }
if grep -v '^tarn_' <<<"$exported"; then
  echo "$2: exports the names above"
  exit 1
fi
echo "ok: $(wc -l <<<"$exported") functions exported"
