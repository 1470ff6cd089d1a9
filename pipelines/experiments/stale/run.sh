#!/bin/sh
# Stale or fresh text: how much worse is a model that reads old versions of pages, and is scored on
# new ones?
#
# Paper: Longpre et al. 2023 ("A Pretrainer's Guide to Training Data", arXiv:2305.13169), on the age
# of data: plots of tasks by year of the text. No value looked up.
# Reads: CORPORA/dedup/versions.jsonl.zst, PEPs of 2014, 2020 and 2026 and the Rust book of 2018 to
# 2026. Of the pages that changed, one half is trained on, in the oldest or the newest version. Of
# the other half the newest version is scored: the first 1,000 characters (titles, dates, status),
# and the next 2,000.
# Takes 3 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/stale/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

"$PYTHON" - "$corpora/dedup/versions.jsonl.zst" "$out" <<'END'
import sys
from collections import defaultdict

from experiments.texts import read, shuffled, write

source, out = sys.argv[1:]
pages = defaultdict(list)
for row in read(source):
    row["source"] = row["set"]
    pages[row["set"], row["path"]].append({**row, "text": row["text"][:3000]})
changed = []
for name in sorted(pages):
    versions = sorted(pages[name], key=lambda row: row["version"])
    if versions[0]["text"] != versions[-1]["text"] and len(versions[-1]["text"]) == 3000:
        changed.append(versions)
changed = shuffled(changed, 0)
trained, scored = changed[: len(changed) // 2], changed[len(changed) // 2 :]
write(f"{out}/fresh.jsonl", [versions[-1] for versions in trained])
write(f"{out}/stale.jsonl", [versions[0] for versions in trained])
newest = [versions[-1] for versions in scored]
write(f"{out}/heads.jsonl", [{**row, "text": row["text"][:1000]} for row in newest])
write(f"{out}/bodies.jsonl", [{**row, "text": row["text"][1000:]} for row in newest])
END

llmcurate compare "$out/fresh.jsonl" "$out/stale.jsonl" --on heads="$out/heads.jsonl" \
  --on bodies="$out/bodies.jsonl" --eval-bytes 60000 --tokens "${TOKENS:-128000}" $small \
  -o "$out/comparison"
