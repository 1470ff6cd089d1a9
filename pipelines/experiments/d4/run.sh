#!/bin/sh
# D4: are the pages that are farthest from the centroids of their clusters better to train on than as
# many that are drawn at random, and those that are nearest worse?
#
# Paper: Tirumala et al. 2023 (D4, arXiv:2308.12284): the farthest are better than
# random ones. Expected sign: - for the farthest, + for the nearest, against random.
# Reads: CORPORA/wcxb/dev.warc.gz, all visible text of half of the pages. Scored: the main texts of
# the other half (dev-gold.jsonl.gz), and novels.
# Takes 4 minutes on two cores that others use too.
#
#   sh pipelines/experiments/d4/run.sh CORPORA OUT
set -eu
corpora=$1 out=$2 here=$(dirname "$0")
. "$here/../small.sh"
mkdir -p "$out"

llmcurate extract "$corpora/wcxb/dev.warc.gz" -o "$out/extracted" --extractor text
"$PYTHON" - "$corpora" "$out" <<'END'
import sys

from experiments.texts import novels, shuffled, web_pages, write

corpora, out = sys.argv[1:]
pages, main = web_pages(f"{out}/extracted/corpus", f"{corpora}/wcxb/dev-gold.jsonl.gz")
write(f"{out}/pages.jsonl", pages)
write(f"{out}/random.jsonl", shuffled(pages, 2)[: len(pages) // 2])
write(f"{out}/main.jsonl", main)
write(f"{out}/novels.jsonl", novels(f"{corpora}/longtext/en-novels.jsonl.zst", 2000)[1][:100])
END

llmcurate run "$here/farthest.yaml" "$out/pages.jsonl" -o "$out/farthest"
llmcurate ablate "$out/random.jsonl" "$out/farthest" nearest="$out/farthest/rejected" \
  --eval main="$out/main.jsonl" --eval novels="$out/novels.jsonl" --eval-bytes 60000 \
  --eval-excerpt 1000 --tokens 80000 $small -o "$out/ablation"
