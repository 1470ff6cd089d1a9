#!/bin/sh
# With and without deduplication: does a model no longer memorise passages that are in many
# documents, and does it lose anything else?
#
# Paper: Lee et al. 2022 ("Deduplicating Training Data Makes Language Models Better",
# arXiv:2107.06499), table 4: 1.926 % of generated tokens are copied from the training text by a
# model of the raw text, 0.138 % by one of the text without exact duplicates.
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 900 characters. In the middle of each a
# passage is planted, of words drawn from a seed: six are in 1 piece, six in 8, six in 64. Pieces by
# other authors, without passages, are scored.
# Second measure: the model gets the first 50 tokens of a passage, to the end of a word. The figure
# is the share of passages whose next 50 tokens are the likeliest, token by token.
# Takes 5 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/planted/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

"$PYTHON" - "$corpora" "$out" <<'END'
import random
import sys

from experiments.texts import novels, write

corpora, out = sys.argv[1:]
COPIES, PASSAGES, WORDS = (1, 8, 64), 6, 50
trained, scored = novels(corpora, 900)
words = sorted({word for row in trained[:2000] for word in row["text"].split() if word.isalpha()})
draw = random.Random(0)
planted = [
    {"copies": copies, "text": " ".join(draw.choice(words) for _ in range(WORDS))}
    for copies in COPIES
    for _ in range(PASSAGES)
]
passages = [row["text"] for row in planted for _ in range(row["copies"])]
draw.shuffle(passages)
rows = []
for row, passage in zip(trained, passages):
    middle = row["text"].find(" ", 450)
    text = f"{row['text'][:middle]}\n{passage}\n{row['text'][middle + 1 :]}"
    rows.append({"id": row["id"], "text": text})
write(f"{out}/planted.jsonl", rows)
write(f"{out}/passages.jsonl", planted)
write(f"{out}/novels.jsonl", scored[:150])
END

llmcurate compare --recipes "$here/deduplicated.yaml" "$here/raw.yaml" \
  --input "$out/planted.jsonl" --on novels="$out/novels.jsonl" --eval-bytes 90000 \
  --tokens "${TOKENS:-210000}" $small -o "$out/comparison"

"$PYTHON" - "$out" <<'END'
import sys

from tokenizers import Tokenizer

from experiments.texts import read, write

out = sys.argv[1]
tokenizer = Tokenizer.from_file(f"{out}/comparison/tokenizer/tokenizer.json")
questions = {}
for row in read(f"{out}/passages.jsonl"):
    text, ends, start = row["text"], [], 0
    for offset in range(1, len(text)):
        if text[offset] == " " and len(tokenizer.encode(text[start:offset]).ids) >= 50:
            ends.append(offset)
            start = offset
    question = {"context": text[: ends[0]], "continuation": text[ends[0] : ends[1]]}
    questions.setdefault(row["copies"], []).append(question)
for copies, rows in questions.items():
    write(f"{out}/copies-{copies}.jsonl", rows)
END

for corpus in deduplicated raw; do
  for seed in $(seq 0 $((seeds - 1))); do
    llmcurate evaluate "$out/comparison/runs/$corpus/seed-$seed" \
      --on copies-1="$out/copies-1.jsonl" --on copies-8="$out/copies-8.jsonl" \
      --on copies-64="$out/copies-64.jsonl" --json --quiet \
      > "$out/$corpus-$seed.json"
  done
done
"$PYTHON" - "$out" "$seeds" <<'END'
import json
import sys
from pathlib import Path

out, seeds = sys.argv[1], int(sys.argv[2])
print("\npassages whose next 50 tokens are completed verbatim; by copies in the corpus and seed")
for corpus in ("deduplicated", "raw"):
    texts = [Path(f"{out}/{corpus}-{seed}.json").read_text("utf-8") for seed in range(seeds)]
    scores = [json.loads(text)["questions"] for text in texts]
    for copies in ("copies-1", "copies-8", "copies-64"):
        shares = ", ".join(f"{score[copies]['accuracy']:.0%}" for score in scores)
        mean = sum(score[copies]["accuracy"] for score in scores) / len(scores)
        bits = sum(score[copies]["bits_per_byte"] for score in scores) / len(scores)
        print(f"{corpus}, {copies}: {shares}; mean {mean:.0%}, {bits:.2f} bits per byte")
END
