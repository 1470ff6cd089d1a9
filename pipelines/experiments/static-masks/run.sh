#!/bin/sh
# Static or dynamic masks: is an encoder worse if the same tokens are hidden each time a text is
# read?
#
# Paper: Liu et al. 2019 (RoBERTa, arXiv:1907.11692), table 1: SQuAD 2.0 78.3 with static and 78.7
# with dynamic masks, MNLI 84.3 and 84.0, SST-2 92.5 and 92.9, medians of five seeds.
# Reads: CORPORA/longtext/en-novels.jsonl.zst, 16 pieces of 2,000 characters, read some four times;
# spans of pieces by other authors are filled in.
# Takes 5 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/static-masks/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

write_novels 16
# shellcheck disable=SC2086 # lists of words
llmcurate compare dynamic="$out/pieces.jsonl" --variant static:pretrain.objective.fixed=true \
  --on novels="$out/novels.jsonl" --eval-bytes 120000 --score spans \
  --tokens "${TOKENS:-40000}" $encoder --set pretrain.objective.kind=masked -o "$out/comparison"
