"""The question: a run's steps as they were and as they would be, and the settings that differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.documents.limits import Limit
from curate.inspect.report.page import bytes_a_token
from curate.run.homes import Corpus, corpus_of
from curate.run.records import read_record
from curate.steps.contracts import CorpusStep, Settings, Step
from curate.steps.recipe import Recipe, load
from llmcurate.base.errors import RunFailed, UsageError

BY_PROFILE = "by profile"
READER = -1  # the place of what marks before any step: reading, the engine


@dataclass(frozen=True)
class Rule:
    """A rule that compares a stored column, in its step; `was` and `now` differ in thresholds."""

    step: str
    at: int  # the step's place among the steps on documents
    was: Limit
    now: Limit

    @property
    def name(self) -> str:
        """`step.rule`, as in reasons."""
        return f"{self.step}.{self.now.rule}"

    def column(self, name: str | None = None) -> str:
        """The full name of the column it compares, or of another of its step."""
        return f"{self.step}.{name or self.now.column}"

    @property
    def setting(self) -> str:
        """What `--set` calls its threshold; empty where it is fixed."""
        return f"{self.step}.{self.now.setting}" if self.now.setting else ""


@dataclass(frozen=True)
class Question:
    """A run and other settings for it.

    steps: labels of the steps on documents in order; stage: of each the number of its stage;
    edits: of each whether it may change texts, or resolves the whole corpus. again: settings that
    stored scores do not decide -> (the step's place, why).
    """

    corpus: Corpus
    sets: tuple[str, ...]
    folders: list[str]  # of the stages
    bytes_a_token: tuple[float, bool]  # and whether that was measured
    was: Recipe
    now: Recipe
    steps: list[str]
    stage: list[int]
    edits: list[bool]
    resolves: list[bool]
    rules: list[Rule]
    changes: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    again: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        """The run's folder, or a HOME."""
        return self.corpus.out

    @property
    def columns(self) -> list[str]:
        """The columns that the rules look at."""
        names: dict[str, None] = {}
        for rule in self.rules:
            names[rule.column()] = None
            if rule.now.only:
                names[rule.column(rule.now.only)] = None
        return list(names)


def ask(out: Path, sets: tuple[str, ...] = ()) -> Question:
    """The question of a finished run and `--set` values. UsageError says what cannot be asked."""
    corpus = corpus_of(out)
    recipe = corpus.run / "recipe.yaml"
    if not recipe.exists() or not (corpus.run / "run.json").exists():
        raise UsageError(f"{out} holds no finished run: name the OUT of one")
    try:
        record = read_record(corpus.run)
    except (OSError, RunFailed):
        raise UsageError(f"{out / 'run.json'} is damaged: run the recipe again") from None
    was, now = load(str(recipe)), load(str(recipe), sets)
    corpus.need_whole()
    folded = {label: i for i, s in enumerate(record.get("stages", ())) for label in s["steps"]}
    before, after = was.document_steps, now.document_steps
    if not before:
        raise UsageError(f"{out}: the run has no step on documents, so there are no scores")
    for step in before:
        if step.label not in folded:
            raise UsageError(f"{out / 'run.json'} is damaged: no stage has the step {step.label}")
    question = Question(
        corpus,
        sets,
        [stage["folder"] for stage in record["stages"]],
        bytes_a_token(record),
        was,
        now,
        [s.label for s in before],
        [folded[s.label] for s in before],
        [not s.only_measures for s in before],
        [isinstance(s, CorpusStep) for s in before],
        [],
    )
    for at, (old, new) in enumerate(zip(before, after, strict=True)):
        _compare(question, at, old, new)
    _products(question)
    if sets and not question.changes:
        raise UsageError(f"--set {sets[0]}: that is what the run had; give another value")
    return question


def _compare(question: Question, at: int, old: Step | CorpusStep, new: Step | CorpusStep) -> None:
    label = old.label
    limits = {x.rule: x for x in old.limits()}
    later = {x.rule: x for x in new.limits()}
    settings = {x.setting for x in (*limits.values(), *later.values())}
    decides = True
    for key, (a, b) in _differences(old, new).items():
        question.changes[f"{label}.{key}"] = (a, b)
        if key not in settings and not any(k.startswith(key + ".") for k in settings):
            decides = False
            why = (
                "it decides over the whole corpus"
                if isinstance(new, CorpusStep)
                else "it changes what is measured, or what is cut"
            )
            question.again[f"{label}.{key}"] = (at, why)
    if not decides or limits.keys() != later.keys():
        later = limits  # what was measured answers no question of another measure
    question.rules.extend(Rule(label, at, x, later[name]) for name, x in limits.items())


def _differences(old: Settings, new: Settings) -> dict[str, tuple[Any, Any]]:
    a, b = old.model_dump(mode="json"), new.model_dump(mode="json")
    # What a profile decides is left out until it is set, then it holds for all languages.
    return {k: (a.get(k, BY_PROFILE), b[k]) for k in b if a.get(k, BY_PROFILE) != b[k]}


def _products(question: Question) -> None:
    """Settings of products keep no document back: they are no question here."""
    pairs = zip(question.was.products, question.now.products, strict=True)
    for old, new in pairs:
        for key in _differences(old, new):
            raise UsageError(
                f"--set {old.label}.{key}: {old.label} keeps or drops no document; run the recipe"
                " anew for it"
            )
    if question.was.read != question.now.read:
        raise UsageError("--set read.*: reading has no stored scores; run the recipe anew for it")
