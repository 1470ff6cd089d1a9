#!/bin/sh
# The share of tokens that T5's objective hides.
#
# Paper: Raffel et al. 2020 (T5, arXiv:1910.10683), table 6: GLUE and SQuAD with 10 % 82.82 and
# 80.38, 15 % 83.28 and 80.88, 25 % 83.00 and 80.96, 50 % 81.27 and 79.80.
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 2,000 characters; spans of pieces by
# other authors are filled in, 15 % of the words.
# Takes 4 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/t5-rates/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

write_novels 384
rates=$(for percent in 10 25 50; do
  echo "--variant r$percent:pretrain.objective.rate=0.$percent"
done)
# shellcheck disable=SC2086 # lists of words
llmcurate compare r15="$out/pieces.jsonl" $rates --on novels="$out/novels.jsonl" \
  --eval-bytes 120000 --score spans --tokens "${TOKENS:-30000}" $t5 \
  --set pretrain.objective.kind=spans --set pretrain.objective.unit=token -o "$out/comparison"
