#!/bin/sh
# Filtered or unfiltered web text: do C4's heuristics make a better model?
#
# Paper: Raffel et al. 2020 (T5, arXiv:1910.10683), table 8: GLUE 83.28 with C4 and 81.46 with
# unfiltered C4, SQuAD 80.88 and 78.78, SuperGLUE 71.36 and 68.04.
# Reads: CORPORA/wcxb/dev.warc.gz with the recipes c4 and c4-unfiltered, without bad words, and
# CORPORA/models/lid.176.ftz; novels, PEPs and the Rust book of CORPORA/longtext are scored.
# Takes 3 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/c4/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

llmcurate compare --recipes c4 c4-unfiltered --input "$corpora/wcxb/dev.warc.gz" \
  --set c4.badwords=null --set language.model="$corpora/models/lid.176.ftz" \
  --on novels="$corpora/longtext/en-novels.jsonl.zst" \
  --on peps="$corpora/longtext/en-peps.jsonl.zst" \
  --on rust="$corpora/longtext/en-rustbook.jsonl.zst" \
  --eval-bytes 40000 --eval-excerpt 1000 --tokens "${TOKENS:-80000}" $small -o "$out/comparison"
