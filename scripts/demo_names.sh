#!/bin/sh
# Names to their pronunciation, as a sequence-to-sequence task: softmax and
# linear attention of the same sizes side by side, one table at the end.
# `make demo-names` runs this after set-up and build. The pronunciations are
# synthetic: espeak-ng makes them. Environment: see run_demo.py; and
#   NAMES   a list of names, one per line; default ../shared/data/names/names.txt
set -eu
data=${OUT:-models}/data/names
if [ ! -f "$data/pronunciations.json" ]; then
  python3 -B scripts/make_pronunciations.py "$data" \
    ${NAMES:+--names "$NAMES"} >/dev/null
fi
exec python3 -B scripts/run_demo.py names
