#!/bin/sh
# Run all experiments, one after the other, and print a line for each: seconds, differences from the
# first row with 95 % intervals, placebo, seeds. One that fails does not stop the others; the exit
# status is then 1. OUT/NAME.log has what an experiment printed.
# It took 67 minutes on two cores that also ran other work. For a larger machine give
# TOKENS (per run), EPOCHS (where runs read equal text) and SEEDS.
#
#   sh pipelines/experiments/all.sh CORPORA OUT
set -u
corpora=$1 out=$2 here=$(dirname "$0")
TOKENS=${TOKENS:-40000} EPOCHS=${EPOCHS:-0.15} SEEDS=${SEEDS:-3}
export TOKENS EPOCHS SEEDS
mkdir -p "$out"
status=0
for script in "$here"/*/run.sh; do
  name=$(basename "$(dirname "$script")")
  begun=$(date +%s)
  if sh "$script" "$corpora" "$out/$name" > "$out/$name.log" 2>&1 < /dev/null; then
    line=$("${PYTHON:-python3}" "$here/summary.py" "$out/$name") || status=1
  else
    line="failed: $(tail -n 1 "$out/$name.log")"
    status=1
  fi
  echo "$name, $(($(date +%s) - begun)) s: $line"
done
exit $status
