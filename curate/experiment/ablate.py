"""An experiment from its corpora to its figures: `llmcurate ablate`.

OUT/  corpora/NAME/      what recipes made, where they are compared
      tokenizer/         trained on the union, where none is given
      shards/NAME/       token shards; shards/placebo has those of the first corpus in another order
      eval/NAME/         evaluation texts, without what a corpus holds
      overlap.json       13-grams that they have in common
      runs/NAME/seed-0/  a run of training, and the nats of every document (nats.npz)
      pilot/             with --minutes short runs, and what they chose
      ablation.json  ablation.html
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.disk.files import file_digest, make_folder
from curate.disk.units import counted
from curate.engines.base import Task
from curate.errors import UsageError
from curate.experiment import budget as budgets
from curate.experiment.corpora import (
    PLACEBO,
    Corpus,
    encode,
    run_recipes,
    shares_of_sets,
    tokenizer_for,
)
from curate.experiment.evaluation import (
    EvalText,
    draw_text,
    encode_apart,
    find_overlap,
    first_bytes,
)
from curate.experiment.figures import collect
from curate.experiment.runs import Place, Training, make_runs
from curate.run.outcome import Options
from curate.terminal.progress import say

if TYPE_CHECKING:
    from curate.cli.model_settings import Ablate

# Of every run: a line of the log a step, one checkpoint, and next to no text of the corpus held
# out, since the evaluation texts are what is scored.
COMMON = {
    "log_every": 1,
    "keep_checkpoints": 1,
    "keep_best": False,
    "held_out": 0.001,
    "eval_tokens": 1,
}
CHECKPOINTS = 10  # of a long run


def run_experiment(
    corpora: Sequence[Corpus],
    texts: dict[str, str],
    out: Path,
    chosen: Ablate,
    sets: Sequence[str],
    place: Place,
) -> dict[str, Any]:
    """The figures of the experiment; what is done of it is not done again. Raises UsageError before
    anything is trained, TrainError and RunFailed."""
    begun = time.monotonic()
    if not texts:
        raise UsageError("give --eval NAME=PATH: texts that both corpora are scored on")
    budget = budgets.chosen_budget(chosen)
    settings, changes = shares_of_sets(sets, corpora)
    drawn = [draw_text(*text, chosen.eval_bytes, chosen.eval_excerpt) for text in texts.items()]
    make_folder(out)
    options = Options(place.workers, place.quiet, place.engine, place.address)
    corpora = run_recipes(corpora, changes, out, options)
    local = Options(place.workers, place.quiet)
    tokenizer = tokenizer_for(
        corpora, chosen.tokenizer, out, {"vocab": chosen.vocab, **settings["tokenizer"]}, local
    )
    shards = encode(corpora, tokenizer.file, out, local)
    training = Training(
        chosen.model or "tiny",
        settings["model"],
        {
            **COMMON,
            **chosen.model_dump(include={"rows", "context", "lr", "device"}),
            **settings["pretrain"],
        },
        {name: str(out / "eval" / name) for name in texts},
        chosen.threads,
    )
    sizes = {corpus.name: budgets.size_of(shards[corpus.name], training) for corpus in corpora}
    request = budgets.Request(shards, sizes, out, chosen, training, place, begun)
    choice = budgets.choose_model(request) if budget.kind == "minutes" else None
    if choice is not None:
        drawn = [first_bytes(text, choice["eval_bytes"]) for text in drawn]
    facts = _encode_apart(drawn, corpora, shards, tokenizer.file, out, chosen, place.quiet)
    minutes = None
    if choice is not None:
        minutes = budgets.run_pilot(request, choice)
        training = replace(training, model=minutes["model"])
        budget = budgets.Budget("tokens", minutes["tokens"])
    parameters, _ = budgets.cost(shards[corpora[0].name], training.model, training)
    tasks = _tasks(shards, sizes, out / "runs", chosen, training, budget)
    make_runs(tasks, place, "training")
    figures = collect(tasks, dict(training.texts), chosen.seed)
    for row, corpus in zip(figures["corpora"], corpora, strict=True):
        size = sizes[corpus.name].bytes
        row |= {"inputs": list(corpus.inputs), "recipe": corpus.recipe, "train_bytes": size}
    return {
        "first": corpora[0].name,
        "tokenizer": {
            "origin": tokenizer.origin,
            "vocabulary": chosen.vocab if chosen.tokenizer is None else None,
            "sha256": file_digest(tokenizer.file),
        },
        "model": training.model,
        "parameters": parameters,
        "changes": training.changes,
        "train": training.settings,
        "equal": {"kind": budget.kind, "amount": budget.amount},
        "minutes": minutes,
        "seeds": list(range(chosen.seed, chosen.seed + chosen.seeds)),
        "seed": chosen.seed,
        "eval": facts,
        **figures,
    }


def _encode_apart(
    drawn: Sequence[EvalText],
    corpora: Sequence[Corpus],
    shards: dict[str, Path],
    tokenizer: Path,
    out: Path,
    chosen: Ablate,
    quiet: bool,
) -> dict[str, dict[str, Any]]:
    """Encodes the documents of the evaluation texts that no corpus holds; what is to be said of
    each text."""
    digests = {
        corpus.name: file_digest(shards[corpus.name] / "manifest.json") for corpus in corpora
    }
    say("comparing evaluation texts with the corpora by 13-grams", quiet)
    shares = find_overlap(drawn, corpora, digests, out)
    facts = {}
    for text in drawn:
        fact = encode_apart(text, shares, chosen.max_overlap, tokenizer, out)
        facts[text.name] = fact
        if fact["left_out"]:
            by_corpus = {name: shared["left_out"] for name, shared in fact["overlap"].items()}
            largest = max(by_corpus, key=lambda name: by_corpus[name])
            say(
                f"eval {text.name}: {counted(fact['left_out'], 'document')} of"
                f" {fact['drawn']:,} left out, which a corpus holds ({largest}:"
                f" {by_corpus[largest]:,})",
                quiet,
            )
    return facts


def _tasks(
    shards: dict[str, Path],
    sizes: dict[str, budgets.Size],
    out: Path,
    chosen: Ablate,
    training: Training,
    budget: budgets.Budget,
) -> list[Task]:
    """All runs: all corpora of a seed first, so that an early end leaves whole comparisons."""
    step = training.settings["rows"] * training.settings["context"]
    first = next(iter(sizes))
    tasks: list[Task] = []
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        for name in (*sizes, PLACEBO):
            tokens = budget.tokens(sizes[first if name == PLACEBO else name])
            steps = max(1, round(tokens / step))
            task = training.task(name, shards[name], seed, steps, out, len(tasks))
            task["train"]["eval_every"] = -(-steps // chosen.points)
            task["train"].setdefault("checkpoint_every", max(50, -(-steps // CHECKPOINTS)))
            tasks.append(task)
    return tasks
