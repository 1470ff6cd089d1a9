#!/bin/sh
# The size of the vocabulary: what does a small model gain or lose by fewer tokens or more, at equal
# text?
#
# Paper: Tao et al. 2024 ("Scaling Laws with Vocabulary: Larger Models Deserve Larger Vocabularies",
# arXiv:2407.13623): for each number of other parameters one size is best, and a smaller model's is
# smaller. Expected sign: + for the largest, 16,384 tokens of which this text gives 12,977, whose vectors
# are 87 % of the parameters, and + for few.
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 2,000 characters, 384 of them 0.9 times;
# pieces by other authors are scored.
# Takes 15 minutes on two cores that others use too.
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
llmcurate ablate v1024="$pieces" v512="$pieces" v4096="$pieces" v16384="$pieces" \
  --set v512.tokenizer.vocab=512 --set v4096.tokenizer.vocab=4096 \
  --set v16384.tokenizer.vocab=16384 --on novels="$out/novels.jsonl" --eval-bytes 120000 \
  --epochs 0.9 $small -o "$out/ablation"
