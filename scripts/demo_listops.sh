#!/bin/sh
# ListOps, long-range form with a cap on the length: 50 < length < 200. An
# encoder with softmax and one with linear attention, same sizes, one table at
# the end. `make demo-listops` runs this after set-up and build. Environment:
# see run_demo.py.
set -eu
data=${OUT:-models}/data/listops
if [ ! -f "$data/listops.json" ]; then
  python3 -B scripts/make_listops.py "$data" --min-len 50 --max-len 200 \
    --train 60000 --valid 1000 --test 2000
fi
exec python3 -B scripts/run_demo.py listops
