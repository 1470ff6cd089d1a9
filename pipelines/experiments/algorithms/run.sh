#!/bin/sh
# Learning tokens: does a small model get better with SuperBPE or Unigram than with BPE, at equal
# text and equal vocabulary size?
#
# Paper: Liu et al. 2025 (SuperBPE, arXiv:2503.13423), abstract: +4.0 points on average over 30
# tasks for a model of 8 billion parameters with tokens that span words, at equal size and
# vocabulary.
# Reads: CORPORA/longtext. English: 384 pieces of novels of 2,000 characters; pieces by other
# authors are scored. Mixed: pieces of 500 characters in seven languages, half of the bytes English;
# pieces of other documents of the same sources are scored, by language.
# Takes at most 28 minutes on two cores shared with other work: measured with four more tokenizers.
#
#   sh pipelines/experiments/algorithms/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

"$PYTHON" - "$corpora" "$out" <<'END'
import sys
from itertools import accumulate
from pathlib import Path

from experiments.texts import novels, pieces, read, shuffled, write

corpora, out = sys.argv[1:]
trained, scored = novels(corpora, 2000)
write(f"{out}/novels.jsonl", trained[:384])
write(f"{out}/other-authors.jsonl", scored[:100])


def of_size(documents, lang, size):
    """Return the first pieces with that many bytes in total, and their language."""
    rows = shuffled(pieces(documents, 500), 1)
    ends = accumulate(len(row["text"].encode()) for row in rows)
    return [{**row, "lang": lang} for row, end in zip(rows, ends) if end <= size]


learned = []
rows = [row for path in sorted(Path(corpora, "longtext").glob("*.zst")) for row in read(path)]
for lang in ("en", "de", "hi", "ja", "ru", "th", "zh"):
    documents = shuffled([row for row in rows if row["lang"] == lang], 0)
    half = len(documents) // 2
    learned += of_size(documents[:half], lang, 360_000 if lang == "en" else 60_000)
    write(f"{out}/{lang}.jsonl", of_size(documents[half:], lang, 30_000))
write(f"{out}/mixed.jsonl", learned)
END

novels="$out/novels.jsonl"
llmcurate compare bpe="$novels" superbpe="$novels" unigram="$novels" \
  --set superbpe.tokenizer.superwords=3686 \
  --set unigram.tokenizer.model=unigram --on novels="$out/other-authors.jsonl" \
  --eval-bytes 120000 --epochs "${EPOCHS:-0.9}" $small --vocab 4096 -o "$out/english"

mixed="$out/mixed.jsonl"
scored=$(for lang in en de hi ja ru th zh; do echo "--on $lang=$out/$lang.jsonl"; done)
llmcurate compare bpe="$mixed" unigram="$mixed" \
  --set unigram.tokenizer.model=unigram $scored --eval-bytes 30000 \
  --epochs "${EPOCHS:-0.9}" $small --vocab 4096 -o "$out/mixed"
