#!/usr/bin/env bash
# Installs what is missing: system packages through apt, Python packages into
# .venv. Skips in a fraction of a second when everything is there.
#   scripts/setup.sh            all
#   scripts/setup.sh --lean     system packages alone (no Python, no torch)
#   scripts/setup.sh --arm      also the cross compiler and qemu
#   scripts/setup.sh --format   also the pinned clang-format
#   scripts/setup.sh --docs     what `make docs` and its test need, and no more
set -euo pipefail
cd "$(dirname "$0")/.."

mode=full
packages=$(grep -v '^#' scripts/packages.txt)
for argument in "$@"; do
  case "$argument" in
    --lean) mode=lean ;;
    --arm) packages="$packages g++-aarch64-linux-gnu qemu-user" ;;
    --format) packages="$packages clang-format-14" ;;
    --docs) mode=docs; packages="python3 python3-venv chromium" ;;
    *) echo "setup: unknown argument $argument (--lean, --arm, --format, --docs)" >&2; exit 2 ;;
  esac
done

missing=()
for package in $packages; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
if [ "${#missing[@]}" -gt 0 ]; then
  sudo=""
  [ "$(id -u)" = 0 ] || sudo=sudo
  command="$sudo apt-get install -y --no-install-recommends ${missing[*]}"
  if ! command -v apt-get >/dev/null; then
    echo "setup: apt-get is not here. Install these yourself: ${missing[*]}" >&2
    exit 1
  fi
  if [ -n "$sudo" ] && ! { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }; then
    if [ ! -t 0 ] || ! command -v sudo >/dev/null; then
      echo "setup: needs root for system packages. Run this as root, then make again:" >&2
      echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
  fi
  echo "setup: installing ${missing[*]}" >&2
  $sudo apt-get update -q >&2
  DEBIAN_FRONTEND=noninteractive $command >&2
fi
if [ "$mode" = docs ]; then
  stamp=.venv/.tarn-setup-docs
  if ! cmp -s requirements-docs.txt "$stamp"; then
    echo "setup: the generator of the site into .venv" >&2
    [ -x .venv/bin/python ] || python3 -m venv .venv
    .venv/bin/python -m pip install -qq --disable-pip-version-check \
      ${TARN_PIP_ARGS:-} -r requirements-docs.txt >&2
    cp requirements-docs.txt "$stamp"
  fi
fi
[ "$mode" = full ] || exit 0

# A Python of the user's own brings its own torch.
if [ -n "${TARN_PYTHON:-}" ]; then
  if ! "$TARN_PYTHON" cmake/find_torch.py >/dev/null; then
    echo "setup: TARN_PYTHON=$TARN_PYTHON has no torch" >&2
    exit 1
  fi
  exit 0
fi
stamp=.venv/.tarn-setup
if ! cmp -s requirements.txt "$stamp"; then
  echo "setup: Python packages into .venv (torch is large; a few minutes)" >&2
  [ -x .venv/bin/python ] || python3 -m venv .venv
  # Doubly quiet shows errors alone: warnings are about the machine's own settings.
  .venv/bin/python -m pip install -qq --disable-pip-version-check \
    ${TARN_PIP_ARGS:-} -r requirements.txt >&2
  site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "$PWD/python" > "$site/tarn.pth"
  cp requirements.txt "$stamp"
fi
