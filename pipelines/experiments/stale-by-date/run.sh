#!/bin/sh
# Text by date: how much worse is a model of pages of 2014 or 2020 on pages of 2026, and one of 2026
# on pages of 2014?
#
# Paper: Lazaridou et al. 2021 ("Mind the Gap", arXiv:2102.01951), table 1: perplexity on news of
# 2018 and 2019 is 6.34 % higher (WMT) or 16.04 % higher (CustomNews) if the training text ends two
# years before. From memory.
# Reads: CORPORA/dedup/versions.jsonl.zst, those PEPs that changed and have a version of 2014, 2020
# and 2026. Half of them is trained on, in one version each. Of the other half 3,000 characters are
# scored, in the versions of 2014 and of 2026.
# Takes 5 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/stale-by-date/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

"$PYTHON" - "$corpora/dedup/versions.jsonl.zst" "$out" <<'END'
import sys
from collections import defaultdict

from experiments.texts import read, shuffled, write

source, out = sys.argv[1:]
pages = defaultdict(dict)
for row in read(source):
    if row["set"] == "peps":
        pages[row["path"]][row["version"]] = row
changed = [
    versions
    for _, versions in sorted(pages.items())
    if len(versions) == 3 and len({row["text"] for row in versions.values()}) > 1
]
changed = shuffled(changed, 0)
half = len(changed) // 2
for year in ("2014", "2020", "2026"):
    write(f"{out}/pages-{year}.jsonl", [versions[year] for versions in changed[:half]])
    scored = [versions[year] for versions in changed[half:]]
    write(f"{out}/scored-{year}.jsonl", [{**row, "text": row["text"][:3000]} for row in scored])
END

# shellcheck disable=SC2086 # lists of words
llmcurate compare y2026="$out/pages-2026.jsonl" y2020="$out/pages-2020.jsonl" \
  y2014="$out/pages-2014.jsonl" --on now="$out/scored-2026.jsonl" \
  --on then="$out/scored-2014.jsonl" --eval-bytes 120000 --eval-excerpt 3000 \
  --tokens "${TOKENS:-30000}" $small -o "$out/comparison"
