"""The question of `whatif`: a run's steps with old and new settings, and the changed settings."""

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
READER = -1  # the position of the reader and the engine: before all steps


@dataclass(frozen=True)
class Rule:
    """A rule that compares a stored column with a threshold, before and after the change."""

    step: str
    at: int  # the position of the step among the document steps
    was: Limit  # old
    now: Limit  # new

    @property
    def name(self) -> str:
        return f"{self.step}.{self.now.rule}"

    def column(self, name: str | None = None) -> str:
        """Return the full name of the rule's column, or of the column `name` of the same step."""
        return f"{self.step}.{name or self.now.column}"

    @property
    def setting(self) -> str:
        """Name of the rule's threshold for `--set`, or empty if the threshold is fixed."""
        return f"{self.step}.{self.now.setting}" if self.now.setting else ""


@dataclass(frozen=True)
class Question:
    """A finished run (`corpus`, recipe `was`) and changed settings (`sets`, recipe `now`) for it.

    Per document step, `steps` has its label, `stage` its stage's number, `edits` whether it may
    change texts, `resolves` whether it decides over the whole corpus. A setting whose effect the
    stored scores do not show is a key of `undecidable`.
    """

    corpus: Corpus
    sets: tuple[str, ...]
    folders: list[str]  # of the stages
    bytes_a_token: tuple[float, bool]  # (ratio, True if it was measured)
    was: Recipe
    now: Recipe
    steps: list[str]  # labels
    stage: list[int]  # number of the step's stage
    edits: list[bool]  # True if the step may change texts
    resolves: list[bool]  # True if the step decides over the whole corpus
    rules: list[Rule]
    changes: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # setting -> (old, new)
    undecidable: dict[str, tuple[int, str]] = field(default_factory=dict)  # (step number, reason)

    @property
    def out(self) -> Path:
        return self.corpus.out

    @property
    def columns(self) -> list[str]:
        names: dict[str, None] = {}
        for rule in self.rules:
            names[rule.column()] = None
            if rule.now.only:
                names[rule.column(rule.now.only)] = None
        return list(names)


def ask(out: Path, sets: tuple[str, ...] = ()) -> Question:
    """Return the question for a run and `--set` values. Raises UsageError if one is not valid."""
    corpus = corpus_of(out)
    recipe = corpus.run / "recipe.yaml"
    if not recipe.exists() or not (corpus.run / "run.json").exists():
        raise UsageError(f"{out} holds no finished run: give the OUT of a run")
    try:
        record = read_record(corpus.run)
    except (OSError, RunFailed):
        raise UsageError(f"{out / 'run.json'} is damaged: run the recipe again") from None
    was, now = load(str(recipe)), load(str(recipe), sets)
    corpus.need_whole()
    folded = {label: i for i, s in enumerate(record.get("stages", ())) for label in s["steps"]}
    before, after = was.document_steps, now.document_steps
    if not before:
        raise UsageError(f"{out}: the run has no steps, so it has no scores")
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
        raise UsageError(f"--set {sets[0]}: the run had this value; give another one")
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
                else "it changes what is measured or cut"
            )
            question.undecidable[f"{label}.{key}"] = (at, why)
    if not decides or limits.keys() != later.keys():
        later = limits  # stored scores cannot decide on another measure
    question.rules.extend(Rule(label, at, x, later[name]) for name, x in limits.items())


def _differences(old: Settings, new: Settings) -> dict[str, tuple[Any, Any]]:
    a, b = old.model_dump(mode="json"), new.model_dump(mode="json")
    # A setting that the profile decides is absent until set; then it holds for all languages.
    return {k: (a.get(k, BY_PROFILE), b[k]) for k in b if a.get(k, BY_PROFILE) != b[k]}


def _products(question: Question) -> None:
    pairs = zip(question.was.products, question.now.products, strict=True)
    for old, new in pairs:
        for key in _differences(old, new):
            raise UsageError(
                f"--set {old.label}.{key}: {old.label} drops no documents; run the recipe again"
                " with this setting"
            )
    if question.was.read != question.now.read:
        raise UsageError(
            "--set read.*: reading has no stored scores; run the recipe again with this setting"
        )
