#!/bin/sh
# Gated feed-forwards: which activation makes the best model, at equal parameters?
#
# Paper: Shazeer 2020 ("GLU Variants Improve Transformer", arXiv:2002.05202), table 1:
# log-perplexity of T5 base on filled spans after 524,288 steps: ReLU 1.677, GELU 1.679, Swish
# 1.683, GLU 1.663, ReGLU 1.645, SwiGLU 1.636, GEGLU 1.633.
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 2,000 characters. Decoders are compared,
# in bits per byte of pieces by other authors.
# Takes 7 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/glu/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

write_novels 384
gated=$(for name in glu reglu swiglu geglu; do
  echo "--variant $name:model.feed_forward.activation=$name,model.feed_forward.width=256"
done)
# shellcheck disable=SC2086 # lists of words
llmcurate compare relu="$out/pieces.jsonl" --variant gelu:model.feed_forward.activation=gelu \
  --variant swish:model.feed_forward.activation=swish $gated --on novels="$out/novels.jsonl" \
  --eval-bytes 120000 --tokens "${TOKENS:-60000}" $small \
  --set model.feed_forward.activation=relu --set model.feed_forward.width=384 \
  -o "$out/comparison"
