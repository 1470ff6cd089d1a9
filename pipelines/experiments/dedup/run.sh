#!/bin/sh
# Methods of deduplication: which makes the best model, exact matches, MinHash, suffix arrays, a
# Bloom filter, or two of them?
#
# Paper: Penedo et al. 2023 (RefinedWeb, arXiv:2306.01116) deduplicate by MinHash and suffix arrays;
# Li et al. 2024 (DCLM, arXiv:2406.11794) by a Bloom filter. No value looked up.
# Reads: CORPORA/dedup/versions.jsonl.zst: all versions of 120 pages, the first 3,000 characters of
# each. The newest versions of other pages are scored.
# Takes 7 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/dedup/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

"$PYTHON" - "$corpora/dedup/versions.jsonl.zst" "$out" <<'END'
import sys
from collections import defaultdict

from experiments.texts import read, shuffled, write

source, out = sys.argv[1:]
pages = defaultdict(list)
for row in read(source):
    pages[row["set"], row["path"]].append({**row, "text": row["text"][:3000]})
several = shuffled([name for name in sorted(pages) if len(pages[name]) > 1], 0)
write(f"{out}/versions.jsonl", [row for name in several[:120] for row in pages[name]])
newest = [max(pages[name], key=lambda row: row["version"]) for name in several[120:]]
write(f"{out}/pages.jsonl", [{**row, "source": row["set"]} for row in newest])
END

llmcurate compare --recipes "$here/raw.yaml" "$here/exact.yaml" "$here/minhash.yaml" \
  "$here/suffix-array.yaml" "$here/bloom.yaml" "$here/minhash-suffix-array.yaml" \
  --input "$out/versions.jsonl" --on pages="$out/pages.jsonl" --tokens "${TOKENS:-80000}" $small \
  -o "$out/comparison"
