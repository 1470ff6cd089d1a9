#!/bin/sh
# The length of the context: how much does a model lose if it sees 32, 64 or 128 tokens in place of
# 256, at equal tokens in a step?
#
# Paper: Press et al. 2022 (ALiBi, arXiv:2108.12409), table 12: perplexity of a model of 1.3 billion
# parameters with sinusoidal positions, trained and scored with 512 tokens 9.71, 1,024 9.15, 2,048
# 8.83.
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 2,000 characters, some 700 tokens; pieces
# by other authors are scored. With half as long a context a step has twice as many rows. A model is
# scored with its own context.
# Takes 4 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/context-length/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

write_novels 384
# shellcheck disable=SC2086 # lists of words
llmcurate compare c256="$out/pieces.jsonl" \
  --variant c128:pretrain.context=128,pretrain.rows=8 \
  --variant c64:pretrain.context=64,pretrain.rows=16 \
  --variant c32:pretrain.context=32,pretrain.rows=32 --on novels="$out/novels.jsonl" \
  --eval-bytes 120000 --tokens "${TOKENS:-30000}" $small --context 256 --rows 4 \
  -o "$out/comparison"
