"""An experiment from its corpora and variants to its figures: `llmcurate compare`.

OUT/  corpora/NAME/      documents made by recipes (--recipes)
      tokenizer/         trained on the union of the corpora, unless one is given
      tokenizers/NAME/   the tokenizer of a corpus with its own tokenizer settings
      shards/NAME/       token shards; shards/placebo has the first corpus in another order
      eval/TEXT/         evaluation texts, without documents that a corpus contains
      evals/NAME/TEXT/   evaluation texts, encoded by a corpus's own tokenizer
      texts/TEXT.jsonl   evaluation texts as text, if the score is computed from text
      overlap.json       shares of 13-grams in common
      runs/NAME/seed-0/  a training run, and the value of every scored item (scores.npz)
      pilot/             with --minutes: short runs, and the choices made from them
      comparison.json  comparison.html
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from curate.experiment import budget as budgets
from curate.experiment.corpora import (
    ORDER,
    OTHER_ORDER,
    PLACEBO,
    PRESET,
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
from curate.experiment.runs import RunTask, Training, make_runs
from curate.run.records import Options
from llmcurate.base.disk.files import file_digest, make_folder
from llmcurate.base.disk.sealed_json import read_json
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, UsageError
from llmcurate.base.terminal import say
from train.evaluate.scores import Score, score_of

if TYPE_CHECKING:
    from curate.api.model_settings import Compare

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
    """A corpus, a variant or the placebo, which is the first corpus in another order. It has token
    shards, their tokenizer and the settings of training."""

    corpus: Corpus
    tokenizer: Tokenizer
    shards: Path
    size: budgets.Size
    training: Training

    @cached_property
    def flops_per_token(self) -> float:
        try:
            return budgets.cost(self.shards, self.training.model, self.training)[1]
        except LlmcurateError as error:
            raise type(error)(f"{self.corpus.name}: {error}") from error

    def figures(self, row: Row, sets: Sets) -> CorpusRow:
        """Return `row` (figures of this arm's runs), with facts about the arm's corpus added."""
        vocabulary = read_json(self.shards / "manifest.json")["vocab_size"]
        digest = file_digest(self.tokenizer.file)
        return CorpusRow(
            **vars(row),
            inputs=list(self.corpus.inputs),
            recipe=self.corpus.recipe,
            train_bytes=self.size.bytes,
            model=self.training.model,
            tokenizer=TokenizerFigures(self.tokenizer.origin, vocabulary, digest),
            settings={
                f"{change.section}.{change.key}".rstrip("."): change.value
                for change in sets.own[self.corpus.name]
            },
        )


@dataclass(frozen=True)
class Checked:
    """An experiment whose settings are valid."""

    score: Score
    budget: budgets.Budget
    sets: Sets
    choices: dict[str | None, Choice]  # tokenizer files or recipes, by corpus
    training: dict[str, Training]  # the settings of each row


def _checked(
    corpora: Sequence[Corpus], texts: dict[str, str], chosen: Compare, sets: Sequence[str]
) -> Checked:
    score = score_of(chosen.score, chosen.tuning_steps)
    if score.reads == "file" and texts:
        raise UsageError(f"--score {chosen.score} scores the lines of this file: leave --on out")
    if score.reads != "file" and not texts:
        raise UsageError(f"give evaluation texts (--on NAME=PATH), and one of {budgets.CHOICES}")
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
    own = [change for of in changes.own.values() for change in of if change.section == "model"]
    if budget.kind == "minutes" and own:
        raise UsageError(f"--minutes with {own[0].given}: give --tokens or --flops instead")
    training, scored = {}, (chosen.score, chosen.tuning_steps)
    for corpus in corpora:
        model = changes.values("model", corpus.name)
        settings = {
            **COMMON,
            **chosen.model_dump(include={"rows", "context", "lr", "device"}),
            **changes.values("pretrain", corpus.name),
        }
        named = str(model.pop(PRESET, chosen.model or "tiny"))
        run = Training(named, model, chosen.threads, settings, {}, *scored)
        try:
            config, train = budgets.settings_of(run)
        except LlmcurateError as error:
            raise type(error)(f"{corpus.name}: {error}") from error
        score.check(corpus.name, config, train)
        training[corpus.name] = run
    return Checked(score, budget, changes, choices, training)


def describe(
    corpora: Sequence[Corpus], texts: dict[str, str], chosen: Compare, sets: Sequence[str]
) -> list[str]:
    """Return the plan of an experiment as lines. Raises UsageError if the plan is not valid."""
    checked = _checked(corpora, texts, chosen, sets)
    budget = checked.budget
    runs = chosen.seeds * (len(corpora) + 1)
    amount = f"{budget.amount:,.6g} {budget.kind}"
    each = f"in {amount} together" if budget.kind == "minutes" else f"of {amount} each"
    return [
        *(
            f"{'variant' if c.settings else 'corpus'} {c.name}:"
            f" {', '.join(c.settings or filter(None, (c.recipe, *c.inputs)))}"
            for c in corpora
        ),
        f"placebo: {corpora[0].name} in another order",
        f"tokenizer: {chosen.tokenizer or counted(chosen.vocab, 'token') + ' of all corpora'}",
        f"{counted(runs, 'run')} {each}: {counted(chosen.seeds, 'seed')} of every row and of the"
        f" placebo, model {chosen.model or ('by a pilot' if chosen.minutes else 'tiny')}",
        f"scored in {checked.score.unit}{': ' * bool(checked.score.say)}{checked.score.say}",
        *(f"scored on {name}: {path}" for name, path in texts.items()),
    ]


def run_experiment(
    corpora: Sequence[Corpus],
    texts: dict[str, str],
    out: Path,
    chosen: Compare,
    sets: Sequence[str],
    options: Options,
) -> Experiment:
    """Run the experiment and return its figures; finished parts in OUT are reused. Raises
    UsageError before any training if the experiment is not valid, LlmcurateError or RunFailed
    later."""
    begun = time.monotonic()
    checked = _checked(corpora, texts, chosen, sets)
    budget, changes, score = checked.budget, checked.sets, checked.score
    drawn = [
        draw_text(*text, chosen.eval_bytes, chosen.eval_excerpt, changes.read)
        for text in texts.items()
    ]
    make_folder(out)
    corpora = run_recipes(corpora, changes, out, options)
    local = Options(options.workers, options.quiet)
    tokenizers = make_tokenizers(checked.choices, corpora, out, local)
    arms = {}
    encoded: dict[tuple[object, ...], Path] = {}  # rows with equal content share their shards
    orders = [(corpus.name, corpus, ORDER) for corpus in corpora]
    for name, corpus, order in [*orders, (PLACEBO, corpora[0], OTHER_ORDER)]:
        tokenizer = tokenizers[corpus.name]
        content = (corpus.inputs, tokenizer, str(changes.values("shards", corpus.name)), order)
        if content not in encoded:
            folder = out / "shards" / name
            made = encode_corpus(corpus, tokenizer.file, changes, folder, order, local)
            encoded[content] = made
        if score.reads == "file":
            scored = {Path(chosen.score).stem: chosen.score}
        elif score.reads == "shards":
            scored = {text: str(tokenizer.eval_folder(out) / text) for text in texts}
        else:
            scored = {text: str(out / "texts" / f"{text}.jsonl") for text in texts}
        training = replace(checked.training[corpus.name], texts=scored)
        size = budgets.size_of(encoded[content], training)
        arms[name] = Arm(corpus, tokenizer, encoded[content], size, training)
    first = corpora[0].name
    request = budgets.Request(
        {name: arm.shards for name, arm in arms.items()},
        {corpus.name: arms[corpus.name].size for corpus in corpora},
        out,
        chosen,
        arms[first].training,
        options,
        begun,
    )
    choice = budgets.choose_model(request) if budget.kind == "minutes" else None
    if choice is not None:
        drawn = [short_excerpts(text, choice.eval_bytes) for text in drawn]
    facts = {}
    if drawn:
        facts = _write_apart(drawn, distinct(corpora), arms, out, checked, chosen, options.quiet)
    minutes = None
    if choice is not None:
        minutes = budgets.run_pilot(request, choice, detectable)
        budget = budgets.Budget("tokens", minutes.tokens)
        for name, arm in arms.items():
            training = replace(arm.training, model=minutes.model)
            arms[name] = replace(arm, training=training)
    tasks = _tasks(arms, out / "runs", chosen, budget)
    make_runs(tasks, options, "training")
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


def _write_apart(
    drawn: Sequence[EvalText],
    corpora: Sequence[Corpus],
    arms: dict[str, Arm],
    out: Path,
    checked: Checked,
    chosen: Compare,
    quiet: bool,
) -> dict[str, TextFigures]:
    manifests = {corpus.name: arms[corpus.name].shards / "manifest.json" for corpus in corpora}
    say("looking for 13-grams of the evaluation texts in the corpora", quiet)
    digests = {name: file_digest(path) for name, path in manifests.items()}
    shares = find_overlap(drawn, corpora, digests, out, checked.sets.read)
    facts = {}
    for text in drawn:
        written = {
            Path(arm.training.texts[text.name]): arm.tokenizer.file
            if checked.score.reads == "shards"
            else None
            for arm in arms.values()
        }
        fact = encode_uncontaminated(text, shares, chosen.max_overlap, written)
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
    arms: dict[str, Arm], out: Path, chosen: Compare, budget: budgets.Budget
) -> list[RunTask]:
    tasks: list[RunTask] = []
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        for name, arm in arms.items():
            tokens = budget.tokens(arm.size, arm.flops_per_token)
            steps = max(1, round(tokens / arm.training.step))
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
