#!/bin/sh
# The size of the batch: is an encoder better with a few large steps than with many small ones, at
# equal text and a learning rate for each?
#
# Paper: Liu et al. 2019 (RoBERTa, arXiv:1907.11692), table 3: perplexity of masked tokens, MNLI and
# SST-2: with 256 rows and learning rate 1e-4 3.99, 84.7 and 92.7; with 2,000 rows and 7e-4 3.68,
# 85.2 and 92.9; with 8,000 rows and 1e-3 3.77, 84.6 and 92.8.
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 2,000 characters; spans of pieces by
# other authors are filled in. The ratios of rows and of rates are the paper's, one to 8 and 32, and
# one to 7 and 10.
# Takes 3 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/roberta-batches/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

write_novels 384
# shellcheck disable=SC2086 # lists of words
llmcurate compare b2="$out/pieces.jsonl" \
  --variant b16:pretrain.rows=16,pretrain.lr=0.0035,pretrain.warmup=4 \
  --variant b64:pretrain.rows=64,pretrain.lr=0.005,pretrain.warmup=1 \
  --on novels="$out/novels.jsonl" --eval-bytes 120000 --score spans \
  --tokens "${TOKENS:-40000}" $encoder --rows 2 --lr 0.0005 --set pretrain.warmup=32 \
  -o "$out/comparison"
