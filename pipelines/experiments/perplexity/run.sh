#!/bin/sh
# Perplexity buckets: is web text better for training if a model of good text expects it?
#
# Paper: Wenzek et al. 2020 (CCNet, arXiv:1911.00359), section 5: a plot of the quality of word
# vectors trained on head, middle and tail. No value looked up.
# Reads: CORPORA/wcxb/dev.warc.gz, all visible text of half of the pages. The main texts of the
# other half (dev-gold.jsonl.gz) are good text: two thirds train the n-gram model, the rest is
# scored.
# Takes 5 minutes on two cores shared with other work.
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

llmcurate perplexity train "$out/good.jsonl" -o "$out/ngrams" --order 5 --variant ccnet \
  --vocab 8000 --discount-fallback
llmcurate compare --recipes "$here/head.yaml" "$here/middle.yaml" "$here/tail.yaml" \
  --input "$out/pages.jsonl" --set perplexity.model="$out/ngrams/perplexity.bin" \
  --on main="$out/scored.jsonl" --eval-bytes 120000 --tokens "${TOKENS:-100000}" $small \
  -o "$out/comparison"
