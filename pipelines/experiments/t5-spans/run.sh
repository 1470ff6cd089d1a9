#!/bin/sh
# The mean length of the spans that T5's objective hides, against single tokens.
#
# Paper: Raffel et al. 2020 (T5, arXiv:1910.10683), table 7: GLUE and SQuAD with single tokens 83.28
# and 80.88; with spans of 2 tokens 83.54 and 82.09, 3 83.49 and 81.84, 5 83.40 and 82.05, 10 82.85
# and 81.84.
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 2,000 characters; spans of pieces by
# other authors are filled in, three words on average.
# Takes 10 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/t5-spans/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

write_novels 384
spans=$(for length in 2 3 5 10; do
  echo "--variant s$length:pretrain.objective.unit=span,pretrain.objective.span=$length"
done)
# shellcheck disable=SC2086 # lists of words
llmcurate compare tokens="$out/pieces.jsonl" $spans --on novels="$out/novels.jsonl" \
  --eval-bytes 120000 --score spans --tokens "${TOKENS:-30000}" $t5 \
  --set pretrain.objective.kind=spans --set pretrain.objective.unit=token -o "$out/comparison"
