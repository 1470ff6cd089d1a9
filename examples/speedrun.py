"""A tour of llmcurate in one file, from a web archive to text that a model wrote.

    python examples/speedrun.py                        # the demo's web; two minutes on two cores
    python examples/speedrun.py out CC-MAIN-*.warc.gz  # your own pages

Each step is one call, and each comment names the folder of its code. All calls resume: run the file
again and it continues. Change a setting, and only the steps that depend on it are repeated.
"""

from __future__ import annotations

import sys
from pathlib import Path

from llmcurate import Corpus

# The output folder and the input. Without files of your own we read 320 pages that come with the
# package: ten languages, with planted junk, duplicates and personal data. (curate/demo)
out = Path(sys.argv[1] if len(sys.argv) > 1 else "speedrun")
archives = sys.argv[2:]
if not archives:
    from curate.demo.web import build_web

    archives = build_web(out / "web").paths

# 1. THE RECIPE. Nothing is read yet: each method adds a step. A step is one class in one file, such
# as Gopher's rules in `curate/filters/gopher.py`.
corpus = (
    Corpus.read(*archives)  # curate/formats: WARC, WET, parquet, JSONL and a dozen others
    .extract()  # curate/extract: main text, title and date of an HTML page
    .filter("gopher_quality", "gopher_repetition")  # curate/filters: published rules
    .filter("c4", badwords=None)  # without C4's list of bad words
    .dedup("minhash")  # curate/dedup/minhash: keep the longest of near duplicates
)
print(corpus.recipe)  # as YAML, for `llmcurate run`

# 2. THE RUN. The recipe becomes stages, and each stage becomes tasks on parts of the input. Workers
# are processes. A ledger records finished tasks, so a killed run resumes. The bytes do not depend
# on the number of workers. (curate/run, curate/engines)
documents = corpus.run(out / "corpus", workers=2)
print(documents)  # per step: documents in, documents dropped, and by which rule

# 3. REASONS. Dropped documents are kept beside the corpus, with step, rule, measured value and
# limit. (curate/documents/rejected.py, curate/inspect)
rejected = documents.rejected.to_arrow(["id", "url", "step", "rule", "value", "threshold"])
last = rejected.to_pylist()[-1]
print(f"{last['url']}: {last['rule']} of {last['step']}")
print(documents.explain(last["id"]))

# 4. THE TOKENIZER: byte-level BPE as in GPT-2, in the format of Hugging Face's tokenizers. Its card
# has its figures. (tokenize_kit/learn)
tokenizer = documents.train_tokenizer(out / "tokenizer", vocab=4096)
print(f"{tokenizer.card['vocab']:,} tokens")

# 5. SHARDS: documents as token ids, in files that the trainer maps into memory. A tenth of the
# documents is held out and never trained on. (tokenize_kit/shards)
shards = documents.encode(out / "shards", tokenizer, val_fraction=0.1)
print(f"{shards.card['tokens']:,} tokens of text")

# 6. THE MODEL: a decoder like Llama, with rotary positions, grouped heads, SwiGLU and RMSNorm. See
# train/model/config.py (settings), train/model/decoder.py (model) and train/loop/training_step.py.
# The held-out loss is in nats per token; an untrained model has ln(4096) = 8.3. (train)
model = shards.pretrain(out / "model", model="tiny", steps=100, rows=8, context=128)
print(f"loss {model.card['last_loss']:.2f} after 100 steps")

# 7. TEXT. Each token is drawn from the model's prediction. After so little text the model can spell
# words, but not more. (train/generate)
print(model.generate("The ", max_tokens=40, seed=1))

print(f"\n{documents.report}  (open it in a browser)")
