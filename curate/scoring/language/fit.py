"""fastText's training, in a process whose memory begins as zeros.

With one thread fastText 0.9.2 draws random numbers for a tenth of the input matrix only
(`DenseMatrix::uniform` runs block 0 of ten) and trains on whatever the memory held in the rest:
the same lines give another model, or one that diverges. Where the allocator fills what it hands
out, the rest is the same in every run, and zero with glibc.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from curate.errors import RunFailed
from curate.scoring.fasttext.model_file import PREFIX
from curate.scoring.language.native import library, need_library
from curate.scoring.language.training import Training
from curate.steps.contracts import CallApart

# glibc fills with the complement of 255 (mallopt(3), M_PERTURB), macOS with 0xAA, which as numbers
# is -3e-13.
FILLED = {
    "MALLOC_PERTURB_": "255",
    "GLIBC_TUNABLES": "glibc.malloc.perturb=255",
    "MallocPreScribble": "1",
}


def fit_apart(source: Path, target: Path, training: Training, call_apart: CallApart) -> None:
    """Trains on fastText's own file format, in a process of its own, and writes the model to
    target. RunFailed says why not."""
    need_library()
    payload = {"source": str(source), "target": str(target), "training": asdict(training)}
    call_apart("curate.scoring.language.fit:fit", payload, FILLED)


def fit(payload: dict[str, Any]) -> dict[str, Any]:
    """What the process does."""
    source, training = payload["source"], Training(**payload["training"])
    native = library()
    arguments = native.args()
    values = {
        "input": source,
        "output": "",
        "saveOutput": False,
        "model": native.model_name.supervised,
        "loss": getattr(native.loss_name, training.loss),
        "label": PREFIX,
        "lr": training.lr,
        "dim": training.dim,
        "epoch": training.epochs,
        "minCount": training.min_count,
        "minCountLabel": 0,
        "wordNgrams": training.word_ngrams,
        "minn": training.minn,
        "maxn": training.maxn,
        "bucket": training.bucket if training.maxn or training.word_ngrams > 1 else 0,
        "thread": 1,  # several threads write into one matrix in no order
        "seed": training.seed,
        "verbose": 0,
    }
    for key, value in values.items():
        setattr(arguments, key, value)
    model = native.fasttext()
    try:
        native.train(model, arguments)
        if training.quantize:
            cut, again = training.cutoff, training.cutoff > 0
            rest = (training.epochs, training.lr, 1, 0, 2, True)  # dsub 2, norms apart
            model.quantize(source, False, cut, again, *rest)
        model.saveModel(payload["target"])
    except (RuntimeError, ValueError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else "out of memory"
        if "NaN" in reason:
            reason = f"it diverged; set an lr below {training.lr}"
        raise RunFailed(f"training the language model failed: {reason}") from None
    return {}
