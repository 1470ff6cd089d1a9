"""An experiment from its corpora to its figures: `llmcurate ablate`.

OUT/  corpora/NAME/      what recipes made, where they are compared
      tokenizer/         trained on the union, where none is given
      tokenizers/NAME/   the same by settings that a corpus has for itself
      shards/NAME/       token shards; shards/placebo has those of the first corpus in another order
      eval/TEXT/         evaluation texts, without what a corpus holds
      evals/NAME/TEXT/   the same by the tokenizer of such a corpus
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
    check_inputs,
    distinct,
    read_sets,
    run_recipes,
)
from curate.experiment.encoding import (
    ORDER,
    OTHER_ORDER,
    Tokenizer,
    are_equal,
    check_shards,
    choose_tokenizers,
    encode_corpus,
    make_tokenizers,
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
from train.files import read_json

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
    changes = read_sets(sets, corpora)
    check_inputs(corpora, changes)
    check_shards(corpora, changes)
    choices = choose_tokenizers(corpora, chosen.tokenizer, chosen.vocab, changes)
    if budget.kind == "minutes" and not are_equal(choices, corpora):
        raise UsageError(
            "--minutes makes tokens equal, which are unequal text where tokenizers differ: give"
            " --documents or --epochs"
        )
    drawn = [draw_text(*text, chosen.eval_bytes, chosen.eval_excerpt) for text in texts.items()]
    make_folder(out)
    options = Options(place.workers, place.quiet, place.engine, place.address)
    corpora = run_recipes(corpora, changes, out, options)
    local = Options(place.workers, place.quiet)
    tokenizers = make_tokenizers(choices, corpora, out, local)
    first = corpora[0]
    names = {corpus.name: (corpus, ORDER) for corpus in corpora} | {PLACEBO: (first, OTHER_ORDER)}
    shards, trainings = {}, {}
    for name, (corpus, order) in names.items():
        tokenizer = tokenizers[corpus.name]
        folder = out / "shards" / name
        shards[name] = encode_corpus(corpus, tokenizer.file, changes, folder, order, local)
        trainings[name] = Training(
            chosen.model or "tiny",
            changes.values("model"),
            {
                **COMMON,
                **chosen.model_dump(include={"rows", "context", "lr", "device"}),
                **changes.values("pretrain", corpus.name),
            },
            {text: str(tokenizer.eval_folder(out) / text) for text in texts},
            chosen.threads,
        )
    training = trainings[first.name]
    sizes = {c.name: budgets.size_of(shards[c.name], trainings[c.name]) for c in corpora}
    request = budgets.Request(shards, sizes, out, chosen, training, place, begun)
    choice = budgets.choose_model(request) if budget.kind == "minutes" else None
    if choice is not None:
        drawn = [first_bytes(text, choice["eval_bytes"]) for text in drawn]
    facts = _encode_apart(drawn, corpora, shards, tokenizers, out, chosen, place.quiet)
    minutes = None
    if choice is not None:
        minutes = budgets.run_pilot(request, choice)
        trainings = {n: replace(own, model=minutes["model"]) for n, own in trainings.items()}
        budget = budgets.Budget("tokens", minutes["tokens"])
    parameters = {
        name: budgets.cost(shards[name], own.model, own)[0] for name, own in trainings.items()
    }
    tasks = _tasks(shards, sizes, out / "runs", chosen, trainings, budget)
    make_runs(tasks, place, "training")
    figures = collect(tasks, chosen.seed)
    for row, corpus in zip(figures["corpora"], corpora, strict=True):
        row |= {
            "inputs": list(corpus.inputs),
            "recipe": corpus.recipe,
            "train_bytes": sizes[corpus.name].bytes,
            "tokenizer": _described(tokenizers[corpus.name], shards[corpus.name]),
            "parameters": parameters[corpus.name],
            "settings": {
                f"{change.section}.{change.key}": change.value
                for change in changes.own[corpus.name]
            },
        }
    return {
        "first": first.name,
        "tokenizer": figures["corpora"][0]["tokenizer"],
        "model": trainings[first.name].model,
        "parameters": parameters[first.name],
        "changes": training.changes,
        "train": training.settings,
        "equal": {"kind": budget.kind, "amount": budget.amount},
        "minutes": minutes,
        "seeds": list(range(chosen.seed, chosen.seed + chosen.seeds)),
        "seed": chosen.seed,
        "eval": facts,
        **figures,
    }


def _described(tokenizer: Tokenizer, shards: Path) -> dict[str, Any]:
    """What is said of a tokenizer, by shards that it made."""
    return {
        "origin": tokenizer.origin,
        "vocabulary": read_json(shards / "manifest.json")["vocab_size"],
        "sha256": file_digest(tokenizer.file),
    }


def _encode_apart(
    drawn: Sequence[EvalText],
    corpora: Sequence[Corpus],
    shards: dict[str, Path],
    tokenizers: dict[str, Tokenizer],
    out: Path,
    chosen: Ablate,
    quiet: bool,
) -> dict[str, dict[str, Any]]:
    """Encodes the documents of the evaluation texts that no corpus holds; what is to be said of
    each text."""
    read = distinct(corpora)
    digests = {corpus.name: file_digest(shards[corpus.name] / "manifest.json") for corpus in read}
    say("comparing evaluation texts with the corpora by 13-grams", quiet)
    shares = find_overlap(drawn, read, digests, out)
    facts = {}
    for text in drawn:
        encoded = {t.eval_folder(out) / text.name: t.file for t in tokenizers.values()}
        fact = encode_apart(text, shares, chosen.max_overlap, encoded)
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
    trainings: dict[str, Training],
    budget: budgets.Budget,
) -> list[Task]:
    """All runs: all corpora of a seed first, so that an early end leaves whole comparisons."""
    first = next(iter(sizes))
    tasks: list[Task] = []
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        for name, training in trainings.items():
            tokens = budget.tokens(sizes[first if name == PLACEBO else name])
            steps = max(1, round(tokens / training.step))
            task = training.task(name, shards[name], seed, steps, out, len(tasks))
            task["train"]["eval_every"] = -(-steps // chosen.points)
            task["train"].setdefault("checkpoint_every", max(50, -(-steps // CHECKPOINTS)))
            tasks.append(task)
    return tasks
