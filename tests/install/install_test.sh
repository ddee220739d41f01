#!/bin/bash
# install_test.sh BUILD SOURCE WRITE_RANDOM_MODEL: installs the lean half into a
# prefix, builds a C and a C++ program outside the tree against it, by CMake and
# by pkg-config, and runs them on a small model; then the same with the prefix moved.
set -euo pipefail
build=$1 source=$2 write_random_model=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cxx=${CXX:-g++}

"$write_random_model" "$work/model"
cmake --install "$build" --prefix "$work/prefix" --component runtime >/dev/null

echo "-- find_package(tarn)"
cmake -S "$source/consumer" -B "$work/consumer" \
  -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/consumer"
"$work/consumer/generate_c" "$work/model" | tee "$work/c.txt"
"$work/consumer/generate_cpp" "$work/model" >"$work/cpp.txt"
cmp "$work/c.txt" "$work/cpp.txt"

echo "-- pkg-config, from a prefix that was moved"
mv "$work/prefix" "$work/moved"
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$work/moved" -name tarn.pc)")
libdir=$(dirname "$PKG_CONFIG_PATH")
cc -std=c99 -Wall -Werror "$source/consumer/generate.c" -o "$work/by_pc" \
  $(pkg-config --cflags --libs tarn) "-Wl,-rpath,$libdir"
"$work/by_pc" "$work/model" | cmp - "$work/c.txt"
"$cxx" -std=c++17 -Wall -Werror "$source/consumer/generate.cpp" \
  -o "$work/by_pc_cpp" $(pkg-config --cflags --libs tarn) "-Wl,-rpath,$libdir"
"$work/by_pc_cpp" "$work/model" | cmp - "$work/c.txt"
[ "$(pkg-config --modversion tarn)" = "$("$work/moved/bin/tarn" --version | cut -d' ' -f2)" ]

echo "-- the installed program writes the same text"
"$work/moved/bin/tarn" generate "$work/model" --prompt hello --max-tokens 20 \
  --seed 7 2>/dev/null | cmp - "$work/c.txt"

echo "-- DESTDIR"
DESTDIR="$work/stage" cmake --install "$build" --prefix /usr/local \
  --component runtime >/dev/null
[ -x "$work/stage/usr/local/bin/tarn" ]
[ -f "$work/stage/usr/local/include/tarn/tarn.h" ]
[ -f "$work/stage/usr/local/share/doc/tarn/licenses/utf8proc.txt" ]
if grep -rlF "$work" "$work/stage"; then
  echo "the files above name the staging folder"
  exit 1
fi
echo ok
