"""An experiment from its corpora to its figures: `llmcurate ablate`.

OUT/  corpora/NAME/      what recipes made, where they are compared
      tokenizer/         trained on the union, where none is given
      shards/NAME/       token shards; shards/placebo has those of the first corpus in another order
      eval/NAME/         evaluation texts, without what a corpus holds
      overlap.json       13-grams that they have in common
      runs/NAME/seed-0/  a run of training, and the nats of every document (nats.npz)
      pilot/             short runs, and plan.json: what --minutes chose
      ablation.json  ablation.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.disk.files import file_digest, make_folder
from curate.disk.units import counted
from curate.errors import UsageError
from curate.experiment import budget as budgets
from curate.experiment.corpora import (
    PLACEBO,
    Corpus,
    Tokenizer,
    encode,
    run_recipes,
    shares_of_sets,
    tokenizer_for,
)
from curate.experiment.evaluation import draw_text, encode_apart, find_overlap
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


@dataclass(frozen=True)
class Prepared:
    """All that training needs: shards by name, evaluation texts, and what is to be said of them."""

    corpora: list[Corpus]
    tokenizer: Tokenizer
    shards: dict[str, Path]
    texts: dict[str, str]
    facts: dict[str, dict[str, Any]]


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
    if not texts:
        raise UsageError("give --eval NAME=PATH: texts that both corpora are scored on")
    budget = budgets.chosen_budget(chosen)
    settings, changes = shares_of_sets(sets, corpora)
    drawn = [draw_text(name, path, chosen.eval_bytes) for name, path in texts.items()]
    make_folder(out)
    options = Options(place.workers, place.quiet, place.engine, place.address)
    corpora = run_recipes(corpora, changes, out, options)
    local = Options(place.workers, place.quiet)
    tokenizer = tokenizer_for(
        corpora, chosen.tokenizer, out, {"vocab": chosen.vocab, **settings["tokenizer"]}, local
    )
    shards = encode(corpora, tokenizer.file, out, local)
    digests = {corpus.name: file_digest(shards[corpus.name] / "manifest.json") for corpus in corpora}
    say("comparing evaluation texts with the corpora by 13-grams", place.quiet)
    shares = find_overlap(drawn, corpora, digests, out)
    facts = {
        text.name: encode_apart(text, shares, chosen.max_overlap, tokenizer.file, out)
        for text in drawn
    }
    for name, fact in facts.items():
        if fact["left_out"]:
            say(f"eval {name}: {_left_out(fact)}", place.quiet)
    folders = {name: str(out / "eval" / name) for name in texts}
    prepared = Prepared(list(corpora), tokenizer, shards, folders, facts)
    training = Training(
        chosen.model or "tiny",
        settings["model"],
        {
            **COMMON,
            **chosen.model_dump(include={"rows", "context", "lr", "device"}),
            **settings["pretrain"],
        },
        folders,
        chosen.threads,
    )
    return _train(prepared, out, chosen, training, budget, place)


def _left_out(fact: dict[str, Any]) -> str:
    largest = max(fact["overlap"], key=lambda name: fact["overlap"][name]["left_out"])
    many = fact["overlap"][largest]["left_out"]
    return (
        f"{counted(fact['left_out'], 'document')} of {fact['drawn']:,} left out, which a corpus"
        f" holds ({largest}: {many:,})"
    )


def _train(
    prepared: Prepared,
    out: Path,
    chosen: Ablate,
    training: Training,
    budget: budgets.Budget,
    place: Place,
) -> dict[str, Any]:
    from curate.experiment.figures import collect

    seeds = range(chosen.seed, chosen.seed + chosen.seeds)
    sizes = {
        name: budgets.size_of(prepared.shards[name], training)
        for name in (corpus.name for corpus in prepared.corpora)
    }
    pilot = None
    if budget.kind == "minutes":
        plan = budgets.planned(prepared.shards, sizes, out, chosen, training, place)
        training, budget = replace(training, model=plan["model"]), plan_budget(plan)
        pilot = plan
    sizes[PLACEBO] = sizes[prepared.corpora[0].name]
    step = training.settings["rows"] * training.settings["context"]
    tasks = []
    for seed in seeds:  # all corpora of a seed first: an early end leaves whole comparisons
        for name in (*(corpus.name for corpus in prepared.corpora), PLACEBO):
            steps = max(1, round(budget.tokens(sizes[name]) / step))
            made = training.task(
                name, prepared.shards[name], seed, steps, out / "runs", len(tasks)
            )
            made["train"]["eval_every"] = max(1, -(-steps // chosen.points))
            tasks.append(made)
    make_runs(tasks, place, "training")
    figures = collect(tasks, prepared.texts, chosen.seed)
    return _described(figures, prepared, sizes, chosen, training, budget, pilot)


def plan_budget(plan: dict[str, Any]) -> budgets.Budget:
    """The tokens that --minutes settled on."""
    return budgets.Budget("tokens", plan["tokens"])


def _described(
    figures: dict[str, Any],
    prepared: Prepared,
    sizes: dict[str, budgets.Size],
    chosen: Ablate,
    training: Training,
    budget: budgets.Budget,
    pilot: dict[str, Any] | None,
) -> dict[str, Any]:
    """The figures with what they are of."""
    for row, corpus in zip(figures["corpora"], prepared.corpora, strict=True):
        size = sizes[corpus.name]
        row |= {
            "inputs": list(corpus.inputs),
            "recipe": corpus.recipe,
            "documents": size.documents,
            "documents_tokens": size.tokens,
            "documents_bytes": size.bytes,
        }
    return {
        "first": prepared.corpora[0].name,
        "tokenizer": {
            "origin": prepared.tokenizer.origin,
            "vocabulary": chosen.vocab if chosen.tokenizer is None else None,
            "sha256": file_digest(prepared.tokenizer.file),
        },
        "model": training.model,
        "changes": training.changes,
        "train": training.settings,
        "equal": {"kind": budget.kind, "amount": budget.amount},
        "minutes": pilot,
        "seeds": list(range(chosen.seed, chosen.seed + chosen.seeds)),
        "seed": chosen.seed,
        "eval": prepared.facts,
        **figures,
    }
