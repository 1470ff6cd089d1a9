#!/bin/sh
# The size of the vocabulary: does a small model get better with fewer or more tokens, at equal
# text?
#
# Paper: Tao et al. 2024 ("Scaling Laws with Vocabulary: Larger Models Deserve Larger Vocabularies",
# arXiv:2407.13623), abstract: ARC-Challenge 29.1 with 32 thousand tokens, 32.0 with 43 thousand, at
# equal computation.
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 2,000 characters, 384 of them, read 0.9
# times. Pieces by other authors are scored. 16,384 tokens were asked for, the text gives 12,977,
# and their vectors are 87 % of the parameters.
# Takes 15 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/vocabulary/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

"$PYTHON" - "$corpora" "$out" <<'END'
import sys

from experiments.texts import novels, write

corpora, out = sys.argv[1:]
trained, scored = novels(corpora, 2000)
write(f"{out}/pieces.jsonl", trained[:384])
write(f"{out}/novels.jsonl", scored[:100])
END

pieces="$out/pieces.jsonl"
llmcurate compare v1024="$pieces" v512="$pieces" v4096="$pieces" v16384="$pieces" \
  --set v512.tokenizer.vocab=512 --set v4096.tokenizer.vocab=4096 \
  --set v16384.tokenizer.vocab=16384 --on novels="$out/novels.jsonl" --eval-bytes 120000 \
  --epochs "${EPOCHS:-0.9}" $small -o "$out/comparison"
