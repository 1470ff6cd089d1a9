#!/bin/sh
# Perplexity buckets: is web text that a model of good text expects better to train on?
#
# Paper: Wenzek et al. 2020 (CCNet, arXiv:1911.00359), section 5: word vectors that
# are trained on head are better than on middle, and worst on tail. Expected sign: +, for middle and
# more for tail, against head.
# Reads: CORPORA/wcxb/dev.warc.gz, all visible text of half of the pages. Of the other half the main
# texts (dev-gold.jsonl.gz) are good text: two thirds for the n-gram model, the rest to be scored.
# Takes 5 minutes on two cores that others use too.
#
#   sh pipelines/experiments/perplexity/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

llmcurate extract "$corpora/wcxb/dev.warc.gz" -o "$out/extracted" --extractor text
"$PYTHON" - "$corpora" "$out" <<'END'
import sys

from experiments.texts import web_pages, write

corpora, out = sys.argv[1:]
pages, main = web_pages(corpora, out)
third = len(main) // 3
write(f"{out}/pages.jsonl", pages)
write(f"{out}/scored.jsonl", main[:third])
write(f"{out}/good.jsonl", main[third:])
END

llmcurate perplexity train "$out/good.jsonl" -o "$out/ngrams" --order 5 --variant ccnet --vocab 8000 \
  --discount-fallback
llmcurate ablate --recipes "$here/head.yaml" "$here/middle.yaml" "$here/tail.yaml" \
  --input "$out/pages.jsonl" --set perplexity.model="$out/ngrams/perplexity.bin" \
  --on main="$out/scored.jsonl" --eval-bytes 120000 --tokens 100000 $small -o "$out/ablation"
