"""An experiment from its corpora to its figures: `llmcurate ablate`.

OUT/  corpora/NAME/      documents made by recipes (--recipes)
      tokenizer/         trained on the union of the corpora, unless one is given
      tokenizers/NAME/   a tokenizer with settings of one corpus
      shards/NAME/       token shards; shards/placebo has the first corpus in another order
      eval/TEXT/         evaluation texts, without documents that a corpus contains
      evals/NAME/TEXT/   the same, encoded by a tokenizer of one corpus
      overlap.json       shares of 13-grams in common
      runs/NAME/seed-0/  a training run, and the loss of every document in nats (nats.npz)
      pilot/             with --minutes: short runs, and the choices made from them
      ablation.json  ablation.html
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from curate.experiment import budget as budgets
from curate.experiment.corpora import (
    ORDER,
    OTHER_ORDER,
    PLACEBO,
    Choice,
    Corpus,
    Sets,
    Tokenizer,
    are_equal,
    check_inputs,
    check_shards,
    choose_tokenizers,
    distinct,
    encode_corpus,
    make_tokenizers,
    read_sets,
    run_recipes,
)
from curate.experiment.evaluation import (
    EvalText,
    TextFigures,
    draw_text,
    encode_uncontaminated,
    find_overlap,
    short_excerpts,
)
from curate.experiment.figures import (
    CorpusRow,
    Experiment,
    Row,
    TokenizerFigures,
    collect,
    detectable,
)
from curate.experiment.runs import EngineChoice, RunTask, Training, make_runs
from curate.formats.read_settings import ReadSettings
from curate.run.records import Options
from llmcurate.base.disk.files import file_digest, make_folder
from llmcurate.base.disk.sealed_json import read_json
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import say

if TYPE_CHECKING:
    from curate.api.model_settings import Ablate

# For every run: log every step, keep one checkpoint, and hold out almost nothing, since the
# evaluation texts are scored instead.
COMMON = {
    "log_every": 1,
    "keep_checkpoints": 1,
    "keep_best": False,
    "held_out": 0.001,
    "eval_tokens": 1,
}
CHECKPOINTS = 10  # per long run


@dataclass(frozen=True)
class Arm:
    """A corpus, or the placebo (the first corpus in another order), with its token shards, their
    tokenizer and the settings of training."""

    corpus: Corpus
    tokenizer: Tokenizer
    shards: Path
    size: budgets.Size
    training: Training

    def figures(self, row: Row, sets: Sets) -> CorpusRow:
        """Return `row`, the figures of the corpus' runs, with facts about the corpus added."""
        parameters, _ = budgets.cost(self.shards, self.training.model, self.training)
        vocabulary = read_json(self.shards / "manifest.json")["vocab_size"]
        digest = file_digest(self.tokenizer.file)
        return CorpusRow(
            **vars(row),
            inputs=list(self.corpus.inputs),
            recipe=self.corpus.recipe,
            train_bytes=self.size.bytes,
            parameters=parameters,
            tokenizer=TokenizerFigures(self.tokenizer.origin, vocabulary, digest),
            settings={
                f"{change.section}.{change.key}": change.value
                for change in sets.own[self.corpus.name]
            },
        )


def _checked(
    corpora: Sequence[Corpus], texts: dict[str, str], chosen: Ablate, sets: Sequence[str]
) -> tuple[budgets.Budget, Sets, dict[str | None, Choice]]:
    if not texts:
        raise UsageError(
            "give evaluation texts (--on NAME=PATH), and one of --tokens, --documents, --epochs and"
            " --minutes"
        )
    budget = budgets.chosen_budget(chosen)
    changes = read_sets(sets, corpora)
    check_inputs(corpora, changes)
    check_shards(corpora, changes)
    choices = choose_tokenizers(corpora, chosen.tokenizer, chosen.vocab, changes)
    if budget.kind == "minutes" and not are_equal(choices, corpora):
        raise UsageError(
            "--minutes gives every run equal tokens, which is unequal text if tokenizers differ:"
            " give --documents or --epochs instead"
        )
    return budget, changes, choices


def describe(
    corpora: Sequence[Corpus], texts: dict[str, str], chosen: Ablate, sets: Sequence[str]
) -> list[str]:
    """Return the plan of an experiment as lines. Raises UsageError if the plan is not valid."""
    budget, _, _ = _checked(corpora, texts, chosen, sets)
    runs = chosen.seeds * (len(corpora) + 1)
    amount = f"{budget.amount:,.6g} {budget.kind}"
    each = f"in {amount} together" if budget.kind == "minutes" else f"of {amount} each"
    return [
        *(f"corpus {c.name}: {', '.join(filter(None, (c.recipe, *c.inputs)))}" for c in corpora),
        f"placebo: {corpora[0].name} in another order",
        f"tokenizer: {chosen.tokenizer or counted(chosen.vocab, 'token') + ' of all corpora'}",
        f"{counted(runs, 'run')} {each}: {counted(chosen.seeds, 'seed')} of every corpus and of the"
        f" placebo, model {chosen.model or ('by a pilot' if chosen.minutes else 'tiny')}",
        *(f"scored on {name}: {path}" for name, path in texts.items()),
    ]


def run_experiment(
    corpora: Sequence[Corpus],
    texts: dict[str, str],
    out: Path,
    chosen: Ablate,
    sets: Sequence[str],
    place: EngineChoice,
) -> Experiment:
    """Run the experiment and return its figures; finished parts in OUT are reused. Raises
    UsageError before any training if the experiment is not valid, LlmcurateError or RunFailed
    later."""
    begun = time.monotonic()
    budget, changes, choices = _checked(corpora, texts, chosen, sets)
    drawn = [
        draw_text(*text, chosen.eval_bytes, chosen.eval_excerpt, changes.read)
        for text in texts.items()
    ]
    make_folder(out)
    options = Options(place.workers, place.quiet, place.engine, place.address)
    corpora = run_recipes(corpora, changes, out, options)
    local = Options(place.workers, place.quiet)
    tokenizers = make_tokenizers(choices, corpora, out, local)
    arms = {}
    orders = [(corpus.name, corpus, ORDER) for corpus in corpora]
    for name, corpus, order in [*orders, (PLACEBO, corpora[0], OTHER_ORDER)]:
        tokenizer, folder = tokenizers[corpus.name], out / "shards" / name
        shards = encode_corpus(corpus, tokenizer.file, changes, folder, order, local)
        settings = {
            **COMMON,
            **chosen.model_dump(include={"rows", "context", "lr", "device"}),
            **changes.values("pretrain", corpus.name),
        }
        encoded = {text: str(tokenizer.eval_folder(out) / text) for text in texts}
        model = chosen.model or "tiny"
        training = Training(model, changes.values("model"), chosen.threads, settings, encoded)
        size = budgets.size_of(shards, training)
        arms[name] = Arm(corpus, tokenizer, shards, size, training)
    first = corpora[0].name
    request = budgets.Request(
        {name: arm.shards for name, arm in arms.items()},
        {corpus.name: arms[corpus.name].size for corpus in corpora},
        out,
        chosen,
        arms[first].training,
        place,
        begun,
    )
    choice = budgets.choose_model(request) if budget.kind == "minutes" else None
    if choice is not None:
        drawn = [short_excerpts(text, choice.eval_bytes) for text in drawn]
    facts = _encode_apart(drawn, distinct(corpora), arms, out, chosen, place.quiet, changes.read)
    minutes = None
    if choice is not None:
        minutes = budgets.run_pilot(request, choice, detectable)
        budget = budgets.Budget("tokens", minutes.tokens)
        for name, arm in arms.items():
            training = replace(arm.training, model=minutes.model)
            arms[name] = replace(arm, training=training)
    tasks = _tasks(arms, out / "runs", chosen, budget)
    make_runs(tasks, place, "training")
    training = arms[first].training
    return collect(
        tasks,
        chosen.seed,
        lambda row: arms[row.name].figures(row, changes),
        model=training.model,
        changes=training.changes,
        train=training.train,
        equal=budget,
        minutes=minutes,
        seeds=list(range(chosen.seed, chosen.seed + chosen.seeds)),
        eval=facts,
    )


def _encode_apart(
    drawn: Sequence[EvalText],
    corpora: Sequence[Corpus],
    arms: dict[str, Arm],
    out: Path,
    chosen: Ablate,
    quiet: bool,
    read: ReadSettings,
) -> dict[str, TextFigures]:
    manifests = {corpus.name: arms[corpus.name].shards / "manifest.json" for corpus in corpora}
    say("looking for 13-grams of the evaluation texts in the corpora", quiet)
    digests = {name: file_digest(path) for name, path in manifests.items()}
    shares = find_overlap(drawn, corpora, digests, out, read)
    facts = {}
    for text in drawn:
        encoded = {Path(arm.training.texts[text.name]): arm.tokenizer.file for arm in arms.values()}
        fact = encode_uncontaminated(text, shares, chosen.max_overlap, encoded)
        facts[text.name] = fact
        if fact.left_out and fact.overlap:
            by_corpus = {name: shared.left_out for name, shared in fact.overlap.items()}
            largest = max(by_corpus, key=lambda name: by_corpus[name])
            say(
                f"eval {text.name}: left out {counted(fact.left_out, 'document')} of"
                f" {fact.drawn:,} that occur in a corpus ({largest}: {by_corpus[largest]:,})",
                quiet,
            )
    return facts


def _tasks(
    arms: dict[str, Arm], out: Path, chosen: Ablate, budget: budgets.Budget
) -> list[RunTask]:
    tasks: list[RunTask] = []
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        for name, arm in arms.items():
            steps = max(1, round(budget.tokens(arm.size) / arm.training.step))
            often = max(50, -(-steps // CHECKPOINTS))
            task = arm.training.task(
                name,
                arm.shards,
                seed,
                steps,
                out,
                len(tasks),
                eval_every=-(-steps // chosen.points),
                checkpoint_every=arm.training.train.get("checkpoint_every", often),
            )
            tasks.append(task)
    return tasks
