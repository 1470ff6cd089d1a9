#!/bin/sh
# SemDeDup and D4: half of a corpus is kept. Is the half without similar documents, or the half
# farthest from the centroids of clusters, better for training than a random half? Is the nearest
# half worse?
#
# Paper: Abbas et al. 2023 (SemDeDup, arXiv:2303.09540), abstract: half of LAION can go with minimal
# loss. Tirumala et al. 2023 (D4, arXiv:2308.12284), abstract: up to 2 points on average over 16
# tasks for a model of 6.7 billion parameters; D4 keeps three quarters by SemDeDup, then the
# farthest of them. From memory.
# Reads: CORPORA/wcxb/dev.warc.gz, all visible text of half of the pages, 2,000 pieces of 1,000
# characters. Scored: the main texts of the other half (dev-gold.jsonl.gz), and novels. Embeddings
# are hashed words; with MODEL, a folder of transformers or sentence-transformers such as
# all-MiniLM-L6-v2's, also that model's.
# Takes 29 minutes with MODEL on two cores shared with other work, 8 of them to embed.
#
#   sh pipelines/experiments/d4/run.sh CORPORA OUT [MODEL]
set -eu
. "$(dirname "$0")/../small.sh"

llmcurate extract "$corpora/wcxb/dev.warc.gz" -o "$out/extracted" --extractor text
"$PYTHON" - "$corpora" "$out" <<'END'
import sys

from experiments.texts import novels, pieces, shuffled, web_pages, write

corpora, out = sys.argv[1:]
pages, main = web_pages(corpora, out)
drawn = shuffled(pieces(pages, 1000), 2)[:2000]
write(f"{out}/pieces.jsonl", drawn)
write(f"{out}/random.jsonl", shuffled(drawn, 3)[:1000])
write(f"{out}/main.jsonl", main)
write(f"{out}/novels.jsonl", novels(corpora, 2000)[1][:100])
END

arms=$out/random.jsonl
for embedding in hashed ${3:+"$3"}; do
  name=$([ "$embedding" = hashed ] && echo hashed || echo model)
  # One folder, so that the model embeds once; the output of each recipe goes elsewhere.
  for half in semdedup d4 farthest; do
    llmcurate run "$here/$half.yaml" "$out/pieces.jsonl" -o "$out/run-$name" \
      --set dedup_semantic.embedding="$embedding"
    llmcurate export "$out/run-$name" -o "$out/$half-$name"
    arms="$arms $half-$name=$out/$half-$name"
  done
  llmcurate export "$out/run-$name/rejected" -o "$out/nearest-$name"
  arms="$arms nearest-$name=$out/nearest-$name"
done
# shellcheck disable=SC2086
llmcurate compare $arms --on main="$out/main.jsonl" --on novels="$out/novels.jsonl" \
  --eval-bytes 60000 --eval-excerpt 1000 --tokens "${TOKENS:-200000}" $small -o "$out/comparison"
