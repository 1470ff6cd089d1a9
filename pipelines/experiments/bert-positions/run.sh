#!/bin/sh
# Positions in BERT: learned vectors, sines, rotation, T5's buckets, Shaw's distances, or none.
#
# Paper: Huang et al. 2020 (arXiv:2009.13658): F1 on SQuAD 1.1 of BERT base: 88.52 with learned
# positions, 90.54 with relative ones in keys and queries (their fourth method, as the authors'
# models score in transformers, examples/legacy/question-answering).
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 2,000 characters; spans of pieces by
# other authors are filled in.
# Takes 3 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/bert-positions/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

write_novels 384
kinds=$(for kind in sinusoidal rope t5 clipped none; do
  echo "--variant $kind:model.position.kind=$kind"
done)
# shellcheck disable=SC2086 # lists of words
llmcurate compare learned="$out/pieces.jsonl" $kinds --on novels="$out/novels.jsonl" \
  --eval-bytes 120000 --score spans --tokens "${TOKENS:-30000}" $encoder -o "$out/comparison"
