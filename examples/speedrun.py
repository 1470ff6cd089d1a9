"""From a web archive to text that a model wrote, in one file: a map of llmcurate.

    python examples/speedrun.py                        # the embedded web; two minutes on two cores
    python examples/speedrun.py out CC-MAIN-*.warc.gz  # your own pages

Each step is one call, and each comment says which folder of the code does it. All calls resume: run
the file again and it goes on where it was; change a setting, and what depends on it is made anew.
"""

from __future__ import annotations

import sys
from pathlib import Path

from llmcurate import Corpus

# The work goes here; without files of your own we read 320 pages that come with the package:
# articles in ten languages, with junk, copies and personal data planted among them. (curate/demo)
out = Path(sys.argv[1] if len(sys.argv) > 1 else "speedrun")
archives = sys.argv[2:]
if not archives:
    from curate.demo.web import build_web

    archives = build_web(out / "web").paths

# 1. WHAT TO DO WITH DOCUMENTS. Nothing is read yet: each method adds a step to a recipe. A step is
# one class in one file: `curate/filters/gopher.py` holds Gopher's rules with their limits.
corpus = (
    Corpus.read(*archives)  # curate/formats: WARC, WET, parquet, JSON lines, and a dozen others
    .extract()  # curate/extract: the main text of an HTML page, its title and date
    .filter("gopher_quality", "gopher_repetition")  # curate/filters: published rules
    .filter("c4", badwords=None)  # without the list of bad words, which is not ours to ship
    .dedup("minhash")  # curate/dedup/minhash: near duplicates, of which the longest stays
)
print(corpus.recipe)  # the same thing as YAML, for `llmcurate run`

# 2. THE RUN. The recipe becomes stages, a stage becomes tasks, a task is one part of the input.
# Workers are processes; a task that is done is a row in a ledger, so that after a kill the rest
# goes on, and the bytes do not depend on how many workers there were. (curate/run, curate/engines)
documents = corpus.run(out / "corpus", workers=2)
print(documents)  # a line a step: how many came in, how many were dropped, and by which rule

# 3. WHY. Whatever was dropped is kept beside the corpus with its reason: step, rule, the measured
# value and the limit that it missed. (curate/documents/rejected.py, curate/inspect)
rejected = documents.rejected.to_arrow(["id", "url", "step", "rule", "value", "threshold"])
last = rejected.to_pylist()[-1]
print(f"{last['url']}: {last['rule']} of {last['step']}")
print(documents.explain(last["id"]))

# 4. A TOKENIZER for this text: byte-level BPE, as GPT-2 has it, learned by our own code and written
# in the format of Hugging Face's tokenizers. Its card says what a token holds. (tokenize_kit/learn)
tokenizer = documents.train_tokenizer(out / "tokenizer", vocab=4096)
print(f"{tokenizer.card['vocab']:,} tokens")

# 5. SHARDS. Every document as the numbers of its tokens, in files that the trainer maps into
# memory; a tenth of the documents is held out, never to be trained on. (tokenize_kit/shards)
shards = documents.encode(out / "shards", tokenizer, val_fraction=0.1)
print(f"{shards.card['tokens']:,} tokens of text")

# 6. A MODEL. A decoder as Llama's: rotary positions, grouped heads, SwiGLU, RMSNorm. The settings
# are train/model/config.py, the model is train/model/decoder.py, a step of training is
# train/loop/training_step.py. The held-out loss is in nats a token; an untrained model has
# ln(4096) = 8.3. (train)
model = shards.pretrain(out / "model", model="tiny", steps=100, rows=8, context=128)
print(f"loss {model.card['last_loss']:.2f} after 100 steps")

# 7. TEXT. Each token is drawn from what the model says comes next. After so little text it has
# learned how words are spelled, and no more. (train/generate)
print(model.generate("The ", max_tokens=40, seed=1))

print(f"\n{documents.report}  (open it in a browser)")
