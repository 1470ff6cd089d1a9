#!/bin/sh
# Gopher's stages: what does each of quality rules, repetition rules and deduplication add?
#
# Paper: Rae et al. 2021 (Gopher, arXiv:2112.11446), appendix A: a plot of the loss by stage on text
# from outside the web. No value looked up.
# Reads: CORPORA/wcxb/dev.warc.gz, all visible text of half of the pages (with menus, as in Common
# Crawl's text files). Scored: the main texts of the other half (dev-gold.jsonl.gz), and novels.
# Takes 6 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/gopher/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

llmcurate extract "$corpora/wcxb/dev.warc.gz" -o "$out/extracted" --extractor text
"$PYTHON" - "$corpora" "$out" <<'END'
import sys

from experiments.texts import novels, web_pages, write

corpora, out = sys.argv[1:]
pages, main = web_pages(corpora, out)
write(f"{out}/pages.jsonl", pages)
write(f"{out}/main.jsonl", main)
write(f"{out}/novels.jsonl", novels(corpora, 2000)[1][:100])
END

llmcurate compare --recipes "$here/raw.yaml" "$here/quality.yaml" "$here/repetition.yaml" \
  "$here/deduplicated.yaml" --input "$out/pages.jsonl" --on main="$out/main.jsonl" \
  --on novels="$out/novels.jsonl" --eval-bytes 60000 --eval-excerpt 1000 \
  --tokens "${TOKENS:-128000}" $small -o "$out/comparison"
