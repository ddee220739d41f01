#!/usr/bin/env bash
# scripts/build_wasm.sh TARGET...: the WebAssembly build in build-wasm. Asks for
# emscripten where it is missing, and installs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v emcc >/dev/null; then
  install=$(cd cmake && python3 -B -c \
    'import system_packages; print(system_packages.install_command(["emscripten"]))' \
    2>/dev/null) || install="apt-get install emscripten"
  echo "wasm: want emcc, found none; as root: $install" >&2
  exit 1
fi
exec scripts/build.sh build-wasm wasm "$@"
