#!/bin/sh
# T5's high-level approaches: which objective prepares a model best for another task, filling spans,
# restoring masked text, continuing text, or putting words in order?
#
# Paper: Raffel et al. 2020 (T5, arXiv:1910.10683), table 4: GLUE and SQuAD after BERT-style masks
# 82.96 and 80.65, prefix language modelling 80.69 and 77.99, deshuffling 73.17 and 67.61; table 5:
# after replaced spans 83.28 and 80.88.
# Reads: PEPs, the Rust book and novels of CORPORA/longtext, 128 pieces of 2,000 characters of each,
# to train on. The task, as T5 has it: write which of the three a piece of 100 characters of another
# document comes from. Half of 600 such pieces are learned, the answers of the others are scored.
# Takes 10 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/t5-approaches/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

"$PYTHON" - "$corpora/longtext" "$out" <<'END'
import sys

from experiments.texts import pieces, read, shuffled, write

source, out = sys.argv[1:]
trained, asked = [], []
for name in ("en-peps", "en-rustbook", "en-novels"):
    documents = shuffled(read(f"{source}/{name}.jsonl.zst"), 0)
    half = len(documents) // 2
    trained += shuffled(pieces(documents[:half], 2000), 1)[:128]
    drawn = shuffled(pieces(documents[half:], 100), 1)[:200]
    asked += [{"source": row["text"], "target": name} for row in drawn if row["text"].strip()]
write(f"{out}/pieces.jsonl", shuffled(trained, 2))
write(f"{out}/questions.jsonl", shuffled(asked, 2))
END

kinds=$(for kind in bert-style continuation deshuffling; do
  echo "--variant $kind:pretrain.objective.kind=$kind"
done)
# shellcheck disable=SC2086 # lists of words
llmcurate compare spans="$out/pieces.jsonl" $kinds --score "$out/questions.jsonl" \
  --tokens "${TOKENS:-30000}" $t5 --set pretrain.objective.kind=spans -o "$out/comparison"
