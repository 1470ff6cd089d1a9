#!/bin/sh
# Norms: RMSNorm or LayerNorm, before or after each part of a block, and none; and the norms after
# each part without warm-up.
#
# Paper: Narang et al. 2021 ("Do Transformer Modifications Transfer Across Implementations and
# Applications?", arXiv:2102.11972), table 1: loss of T5 base on filled spans at the end of
# training: LayerNorm before each part 1.838, RMSNorm 1.821, ReZero 1.939. Xiong et al. 2020
# (arXiv:2002.04745), section 3: with norms after each part and without warm-up, German-English
# translation scores 8.45 BLEU, with warm-up about 34. The second is from memory.
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 2,000 characters; pieces by other authors
# are scored.
# Takes 7 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/norms/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

write_novels 384
# shellcheck disable=SC2086 # lists of words
llmcurate compare layer="$out/pieces.jsonl" --variant rms:model.norm.kind=rms \
  --variant rezero:model.norm.place=none,model.residual.kind=rezero \
  --variant post:model.norm.place=post \
  --variant cold:pretrain.warmup=0 \
  --variant post-cold:model.norm.place=post,pretrain.warmup=0 --on novels="$out/novels.jsonl" \
  --eval-bytes 120000 --tokens "${TOKENS:-30000}" $small --set model.norm.kind=layer \
  -o "$out/comparison"
