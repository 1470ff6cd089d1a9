#!/bin/sh
# In-context pretraining: does a model get better if similar documents share a row and see each
# other?
#
# Paper: Shi et al. 2024 (arXiv:2310.10638), abstract: contexts of similar documents add 8 % to
# in-context learning, 15 % to reading comprehension, 5 % to long-context reasoning. From memory.
# Reads: PEPs, the Rust book and novels of CORPORA/longtext in pieces of 600 characters, 400 of
# each, in rows of 512 tokens; pieces of 2,000 characters of other documents are scored. Positions
# see all earlier positions of their row; those of the third corpus see only their document.
# Takes 10 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/neighbours/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

"$PYTHON" - "$corpora/longtext" "$out" <<'END'
import sys

from experiments.texts import pieces, read, shuffled, write

source, out = sys.argv[1:]
trained = []
for name in ("en-peps", "en-rustbook", "en-novels"):
    documents = shuffled(read(f"{source}/{name}.jsonl.zst"), 0)
    half = len(documents) // 2
    trained += shuffled(pieces(documents[:half], 600), 1)[:400]
    write(f"{out}/{name}.jsonl", shuffled(pieces(documents[half:], 2000), 1)[:50])
write(f"{out}/pieces.jsonl", trained)
END

pieces="$out/pieces.jsonl"
llmcurate compare random="$pieces" neighbours="$pieces" apart="$pieces" \
  --set pretrain.objective.kind=causal --set pretrain.objective.across=true \
  --set neighbours.shards.packing=neighbours --set apart.pretrain.objective.across=false \
  --on peps="$out/en-peps.jsonl" --on rust="$out/en-rustbook.jsonl" \
  --on novels="$out/en-novels.jsonl" --tokens "${TOKENS:-128000}" $small --context 512 --rows 2 \
  -o "$out/comparison"
