#!/bin/sh
# Trains a model with a state of fixed size on real text, then lets it write as
# an RNN.
# `make demo` runs this after set-up and build. Environment:
#   TEXT    texts to learn (one path, or several without spaces);
#           default: the texts of Debian's fortunes
#   PRESET  the kind of model; default mamba2; `demo` has the linear attention of
#           the paper, whose text is worse after the same minutes
#           (docs/demonstrations)
#   STEPS   updates; default: minutes on two cores
#   OUT     where the model goes; default models/demo
#   PROMPT  what the generated text begins with
# A model that was trained with the same settings is not trained again; an
# interrupted training resumes where it stopped.
set -eu

build=${TARN_BUILD_DIR:-build}
OUT=${OUT:-models/demo}
PROMPT=${PROMPT:-The }
STEPS=${STEPS:-}
TEXT=${TEXT:-}
fortunes=/usr/share/games/fortunes

# From here on the script's arguments are the texts.
if [ -z "$TEXT" ]; then
  set --
  for file in "$fortunes"/*; do
    # Skips indexes, and the .u8 links to the same texts.
    case $file in *.dat | *.u8) continue ;; esac
    if [ -f "$file" ]; then set -- "$@" "$file"; fi
  done
  if [ $# -eq 0 ]; then
    echo "demo: no texts in $fortunes; install them with" \
      "\`apt-get install fortunes\` or name a text with TEXT=book.txt" >&2
    exit 1
  fi
elif [ -f "$TEXT" ]; then
  set -- "$TEXT"
else
  # shellcheck disable=SC2086 # several texts, split at spaces on purpose
  set -- $TEXT
fi
for file in "$@"; do
  if [ ! -r "$file" ]; then
    echo "demo: TEXT: want a file that can be read, got $file" >&2
    exit 3
  fi
done

PRESET=${PRESET:-}
# 4,800 updates take as long as the 7,500 of the preset "demo".
flags="--preset ${PRESET:-mamba2}"
if [ -z "$PRESET$STEPS" ]; then flags="$flags --steps 4800"; fi
if [ -n "$STEPS" ]; then
  case $STEPS in *[!0-9]*)
    echo "demo: STEPS: want a whole number, got $STEPS" >&2
    exit 2 ;;
  esac
  # A short run warms up for a twentieth of its steps.
  warmup=$((STEPS / 20))
  if [ "$warmup" -gt 100 ]; then warmup=100; fi
  flags="$flags --steps $STEPS --warmup $warmup"
fi
settings="$flags; $(cat "$@" | cksum)"

if [ ! -f "$OUT/demo.figures" ] ||
  [ "$(cat "$OUT/demo.settings" 2>/dev/null)" != "$settings" ]; then
  how=--overwrite
  if [ "$(cat "$OUT/demo.settings" 2>/dev/null)" = "$settings" ]; then
    how=--resume
  fi
  mkdir -p "$OUT"
  rm -f "$OUT/demo.figures"
  printf '%s' "$settings" >"$OUT/demo.settings"
  # shellcheck disable=SC2086 # flags are words
  "$build/tarn-train" --data "$@" --out "$OUT" $how $flags \
    >"$OUT/demo.figures.tmp"
  mv "$OUT/demo.figures.tmp" "$OUT/demo.figures"
fi
cat "$OUT/demo.figures"
echo
"$build/tarn" generate "$OUT" --prompt "$PROMPT" --max-tokens 400
