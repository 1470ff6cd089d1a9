#!/bin/sh
# T5's denoising objectives: what should a model write, and what should mark the tokens that are
# hidden from it?
#
# Paper: Raffel et al. 2020 (T5, arXiv:1910.10683), table 5: GLUE and SQuAD after replaced spans
# 83.28 and 80.88, BERT-style 82.96 and 80.65, MASS-style 82.32 and 80.10, dropped tokens 84.44 and
# 80.52.
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 2,000 characters. Spans of pieces by
# other authors are filled in, by each model as it has learned: the span after its mark, or in its
# place in the whole text; a model of dropped tokens does not see where they are missing.
# Takes 5 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/t5-objectives/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

write_novels 384
kinds=$(for kind in bert-style mass-style dropped-tokens; do
  echo "--variant $kind:pretrain.objective.kind=$kind"
done)
# shellcheck disable=SC2086 # lists of words
llmcurate compare spans="$out/pieces.jsonl" $kinds --on novels="$out/novels.jsonl" \
  --eval-bytes 120000 --score spans --tokens "${TOKENS:-30000}" $t5 \
  --set pretrain.objective.kind=spans -o "$out/comparison"
