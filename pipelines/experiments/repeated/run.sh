#!/bin/sh
# Repeated data: how much worse is a model that reads 1/4, 1/16 or 1/64 of a corpus 4, 16 or 64
# times, at equal tokens?
#
# Paper: Raffel et al. 2020 (T5, arXiv:1910.10683), table 9: GLUE 83.28 without repeats, 82.87 with
# 64, 82.62 with 256, 79.55 with 1,024, 76.34 with 4,096.
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 2,000 characters. The whole corpus has
# 384 pieces; pieces by other authors are scored.
# Takes 8 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/repeated/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

"$PYTHON" - "$corpora" "$out" <<'END'
import sys

from experiments.texts import novels, write

corpora, out = sys.argv[1:]
trained, scored = novels(corpora, 2000)
for name, count in {"whole": 384, "quarter": 96, "sixteenth": 24, "sixty-fourth": 6}.items():
    write(f"{out}/{name}.jsonl", trained[:count])
write(f"{out}/novels.jsonl", scored[:100])
END

llmcurate compare "$out/whole.jsonl" "$out/quarter.jsonl" "$out/sixteenth.jsonl" \
  "$out/sixty-fourth.jsonl" --on novels="$out/novels.jsonl" --eval-bytes 120000 \
  --tokens "${TOKENS:-256000}" $small -o "$out/comparison"
