#!/bin/sh
# Language identification before or after deduplication: CCNet cuts repeated paragraphs first,
# because English menus on German pages mislead the identification. Does this make a better German
# model?
#
# Paper: Wenzek et al. 2020 (CCNet, arXiv:1911.00359), section 4: the language of more pages is
# identified correctly after deduplication. No value looked up.
# Reads: CORPORA/web/*.warc.gz, all visible text of pages in ten languages, of which the German ones
# are kept, and CORPORA/models/lid.176.ftz; CORPORA/longtext/de-novels.jsonl.zst is scored.
# Takes 3 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/language-order/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

llmcurate extract "$corpora"/web/*.warc.gz -o "$out/extracted" --extractor text
llmcurate compare --recipes "$here/before.yaml" "$here/after.yaml" --input "$out/extracted" \
  --set language.model="$corpora/models/lid.176.ftz" --eval-bytes 100000 --eval-excerpt 2000 \
  --on novels="$corpora/longtext/de-novels.jsonl.zst" --tokens "${TOKENS:-100000}" $small \
  -o "$out/comparison"
