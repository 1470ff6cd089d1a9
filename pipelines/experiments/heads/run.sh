#!/bin/sh
# Shared heads: does a model lose if its six query heads share keys and values, at equal parameters,
# and how much faster does it write?
#
# Paper: Shazeer 2019 ("Fast Transformer Decoding", arXiv:1911.02150), perplexity on the
# Billion-Word benchmark at equal parameters: 29.9 with eight heads, 30.2 with one head of keys and
# values. Ainslie et al. 2023 (GQA, arXiv:2305.13245), table 1: mean score and seconds per sample of
# T5 XXL: all heads 47.2 and 1.51, eight groups 47.1 and 0.28, one group 46.6 and 0.24.
# Reads: CORPORA/longtext/en-novels.jsonl.zst in pieces of 2,000 characters; pieces by other authors
# are scored.
# Second measure: tokens per second of processor time when 32 prompts are continued by 32 tokens,
# the best of five rounds.
# Takes 4 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/heads/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

write_novels 384
# shellcheck disable=SC2086 # lists of words
llmcurate compare all="$out/pieces.jsonl" \
  --variant grouped:model.attention.kv_heads=2,model.feed_forward.width=299 \
  --variant one:model.attention.kv_heads=1,model.feed_forward.width=309 \
  --on novels="$out/novels.jsonl" --eval-bytes 120000 --tokens "${TOKENS:-30000}" $small \
  --set model.attention.heads=6 --set model.attention.kv_heads=6 --set model.attention.head_dim=16 \
  -o "$out/comparison"

"$PYTHON" - "$out" <<'END'
import sys
import time
from dataclasses import replace
from pathlib import Path

from experiments.texts import read
from train.generate import GREEDY, complete, load

out = sys.argv[1]
prompts = [row["text"][:150] for row in read(f"{out}/novels.jsonl")[:32]]
models, seconds = {}, {}
for name in ("all", "grouped", "one"):
    model, tokenizer = load(Path(out, "comparison", "runs", name, "seed-0"))
    model.special = replace(model.special, ends=())  # every text gets all its tokens
    models[name], seconds[name] = (model, tokenizer), []
for _ in range(5):
    for name, of in models.items():
        begun = time.process_time()
        complete(*of, prompts, max_tokens=32, sampling=GREEDY, seed=0)
        seconds[name].append(time.process_time() - begun)
print("\ntokens per second of processor time, by keys and values")
for name, taken in seconds.items():
    print(f"{name}: {32 * 32 / min(taken):,.0f}")
END
