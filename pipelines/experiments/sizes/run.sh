#!/bin/sh
# Metrics over sizes: the loss falls smoothly as models grow; does the share of continuations that
# are right to the last token jump?
#
# Paper: Schaeffer et al. 2023 ("Are Emergent Abilities of Large Language Models a Mirage?",
# arXiv:2304.15004), section 4: more than 92 % of the abilities called emergent in BIG-Bench appear
# under one of two metrics, multiple-choice grade or exact string match.
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 2,000 characters. Models of four widths
# are scored on pieces by other authors, in bits per byte.
# Second measure: on 500 beginnings of these pieces, the share whose next word, and whose next three
# words, are the likeliest, token by token.
# Takes about as long as t5-spans: not measured yet.
# Takes 9 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/sizes/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

write_novels 384
"$PYTHON" - "$corpora" "$out" <<'END'
import sys

from experiments.texts import novels, write

corpora, out = sys.argv[1:]
texts = [row["text"].split() for row in novels(corpora, 2000)[1][:500]]
for count in (1, 3):
    rows = [
        {"context": " ".join(words[:60]), "continuation": " " + " ".join(words[60 : 60 + count])}
        for words in texts
    ]
    write(f"{out}/next-{count}.jsonl", rows)
END

sizes=$(for width in 48 192 384; do
  heads=$((width / 48))
  echo "--variant h$width:model.hidden=$width,model.feed_forward.width=$((width * 8 / 3)),\
model.attention.heads=$heads,model.attention.kv_heads=$heads"
done)
# shellcheck disable=SC2086 # lists of words
llmcurate compare h96="$out/pieces.jsonl" $sizes --on novels="$out/novels.jsonl" \
  --eval-bytes 120000 --tokens "${TOKENS:-30000}" $small --set model.attention.head_dim=48 \
  --set model.attention.heads=2 --set model.attention.kv_heads=2 -o "$out/comparison"

for name in h48 h96 h192 h384; do
  for seed in $(seq 0 $((seeds - 1))); do
    llmcurate evaluate "$out/comparison/runs/$name/seed-$seed" --on next-1="$out/next-1.jsonl" \
      --on next-3="$out/next-3.jsonl" --json --quiet > "$out/$name-$seed.json"
  done
done
"$PYTHON" - "$out" "$seeds" <<'END'
import json
import sys
from pathlib import Path

out, seeds = sys.argv[1], int(sys.argv[2])
print("\nshare of continuations that are the likeliest, and their bits per byte: means over seeds")
for name in ("h48", "h96", "h192", "h384"):
    texts = [Path(f"{out}/{name}-{seed}.json").read_text("utf-8") for seed in range(seeds)]
    scores = [json.loads(text)["questions"] for text in texts]
    shown = []
    for count in ("next-1", "next-3"):
        share = sum(score[count]["accuracy"] for score in scores) / seeds
        bits = sum(score[count]["bits_per_byte"] for score in scores) / seeds
        shown.append(f"{count}: {share:.1%}, {bits:.3f}")
    print(f"{name}: {'; '.join(shown)}")
END
