#!/bin/sh
# T5's architectures with the same objective: encoder and decoder with own or shared weights, or
# with half as many blocks; a decoder that reads the source in both directions, or one that does
# not.
#
# Paper: Raffel et al. 2020 (T5, arXiv:1910.10683), table 2: GLUE and SQuAD of an encoder-decoder
# 83.28 and 80.88, with shared weights 82.81 and 80.63, with half of the blocks 80.88 and 77.59; of
# a prefix LM 81.82 and 78.94; of a language model 74.70 and 61.14.
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 2,000 characters; spans of pieces by
# other authors are filled in.
# Takes 4 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/t5-architectures/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

write_novels 384
# shellcheck disable=SC2086 # lists of words
llmcurate compare t5="$out/pieces.jsonl" --variant shared:model.encoder.shared=true \
  --variant half:model.layers=1,model.encoder.layers=1 \
  --variant prefix:model.encoder=null,pretrain.objective.form=prefix \
  --variant lm:model.encoder=null,pretrain.objective.form=causal \
  --on novels="$out/novels.jsonl" --eval-bytes 120000 --score spans \
  --tokens "${TOKENS:-30000}" $t5 --set pretrain.objective.kind=spans -o "$out/comparison"
