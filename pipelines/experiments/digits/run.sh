#!/bin/sh
# Rules for digits: are additions easier for a model if numbers are split into single digits, into
# groups of three from the left or from the right, or freely?
#
# Paper: Singh and Strouse 2024 ("Tokenization counts", arXiv:2402.14903), section 3: GPT-3.5 adds
# correctly in 97.8 % of cases with groups of three from the right, in 75.6 % with groups from the
# left. From memory.
# Reads: nothing from CORPORA. Additions of numbers of one to four digits are drawn from a seed, one
# per document. 1,000 additions that were not trained on are scored.
# Second measure: bits per byte of the sums only, and the share of sums that the model finds
# likeliest.
# Takes 16 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/digits/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

"$PYTHON" - "$out" <<'END'
import random
import sys

from experiments.texts import write

out = sys.argv[1]
draw = random.Random(0)
pairs = set()
while len(pairs) < 31_000:
    pairs.add(tuple(draw.randrange(10 ** draw.randint(1, 4)) for _ in range(2)))
rows = [
    {"id": f"{a}+{b}", "context": f"{a} + {b} =", "continuation": f" {a + b}"}
    for a, b in draw.sample(sorted(pairs), len(pairs))
]
texts = [{"id": row["id"], "text": row["context"] + row["continuation"]} for row in rows]
write(f"{out}/additions.jsonl", texts[1000:])
write(f"{out}/unseen.jsonl", texts[:1000])
write(f"{out}/sums.jsonl", rows[:1000])
END

names="triples triples-right single free"
corpora=$(for name in $names; do echo "$name=$out/additions.jsonl"; done)
rules=$(for name in $names; do echo "--set $name.tokenizer.digits=$name"; done)
llmcurate compare $corpora $rules --on unseen="$out/unseen.jsonl" --epochs "${EPOCHS:-1}" $small \
  --vocab 1536 -o "$out/comparison"

for rule in $names; do
  for seed in $(seq 0 $((seeds - 1))); do
    llmcurate evaluate "$out/comparison/runs/$rule/seed-$seed" --on sums="$out/sums.jsonl" \
      --json --quiet > "$out/$rule-$seed.json"
  done
done
"$PYTHON" - "$out" "$seeds" $names <<'END'
import json
import sys
from pathlib import Path

out, seeds, *names = sys.argv[1:]
print("\nsums alone: bits per byte, and the share that is the likeliest, by seed")
for name in names:
    texts = [Path(f"{out}/{name}-{seed}.json").read_text("utf-8") for seed in range(int(seeds))]
    scores = [json.loads(text)["questions"]["sums"] for text in texts]
    bits = ", ".join(f"{score['bits_per_byte']:.3f}" for score in scores)
    shares = ", ".join(f"{score['accuracy']:.1%}" for score in scores)
    print(f"{name}: {bits}; {shares}")
END
