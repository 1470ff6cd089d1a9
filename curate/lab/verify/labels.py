"""Check of `language` and `quality` with fastText, which scores the sampled documents again."""

from __future__ import annotations

import re
from typing import Any

from curate.lab.verify.finished_run import Document, FinishedRun, model_at
from curate.lab.verify.tally import SCORE_BOUND, NotChecked, NotInRun, Tally
from curate.scoring.language.identification import Language
from curate.scoring.quality.quality import Quality
from llmcurate.base.disk.files import file_digest
from llmcurate.base.errors import LlmcurateError

_SPACE = "\0\t\n\v\f\r "  # characters that end a word in fastText
_COMMANDS = re.compile(rf"(?<![^{_SPACE}])(?:</s>(?![^{_SPACE}])|__label__[^{_SPACE}]*)")


def line(text: str) -> str:
    """Return a text as one line for fastText, without the words </s> and __label__..., which it
    does not read as text."""
    return _COMMANDS.sub(" ", text).replace("\n", " ")


def check(run: FinishedRun) -> list[Tally]:
    languages, qualities = run.of(Language), run.of(Quality)
    if not languages and not qualities:
        raise NotInRun("the run has no step `language` or `quality`")
    try:
        from curate.scoring.language.model import library

        binding = library()
    except LlmcurateError:
        raise NotChecked("pip install fasttext-numpy2-wheel") from None
    tallies: list[Tally] = []
    for step in run.steps:
        if not isinstance(step, Language | Quality):
            continue
        model = binding.fasttext()
        path = model_at(step._path)
        if step.model_sha256 and file_digest(path) != step.model_sha256.lower():
            raise NotChecked(f"the model {path} is not the one that the run used")
        model.loadModel(str(path))
        if isinstance(step, Language):
            tallies += _language(run, step, model, step is languages[-1])
        else:
            tallies += _quality(run, step, model)
    return tallies


def _text(
    run: FinishedRun, document: Document, step: Language | Quality, tally: Tally
) -> str | None:
    if document.row.get(f"{step.label}.score") is None:
        return None
    try:
        return run.text_before(document, step.label)
    except ValueError as error:
        tally.differs(document.id, str(error))
        return None


def _language(run: FinishedRun, step: Language, model: Any, last: bool) -> list[Tally]:
    labels = Tally("fasttext", f"{step.label}: labels")
    scores = Tally("fasttext", f"{step.label}: scores")
    for document in run.sample:
        text = _text(run, document, step, scores)
        if text is None:
            continue
        stored, score = document.row["lang"], document.row[f"{step.label}.score"]
        text = line(text[: step.max_chars] if step.max_chars else text)
        if not text.strip(_SPACE):
            scores.explain("no_word") if score == 0.0 else scores.differs(
                document.id, f"a text without words has the score {score}, expected 0"
            )
            continue
        best = model.predict(text + "\n", 2, 0.0, "strict")
        chance, label = best[0][0], best[0][1].removeprefix("__label__")
        _score(scores, document.id, score, min(chance, 1.0))
        if not last:
            continue
        tie = len(best) > 1 and chance - best[1][0] <= SCORE_BOUND
        if stored != label and tie and stored == best[1][1].removeprefix("__label__"):
            labels.explain("near_tie")
        else:
            labels.compare(document.id, stored, label)
    return [labels, scores] if last else [scores]


def _quality(run: FinishedRun, step: Quality, model: Any) -> list[Tally]:
    from curate.scoring.quality.model import good_label

    tally = Tally("fasttext", f"{step.label}: scores")
    good = f"__label__{good_label(step._path(), step.score_label)}"
    for document in run.sample:
        text = _text(run, document, step, tally)
        if text is None:
            continue
        score = document.row[f"{step.label}.score"]
        text = line(" ".join(text.strip().splitlines()))
        if not text.strip(_SPACE):
            tally.explain("no_word") if score == 0.0 else tally.differs(
                document.id, f"a text without words has the score {score}, expected 0"
            )
            continue
        chances = {label: chance for chance, label in model.predict(text + "\n", -1, 0.0, "strict")}
        chance = chances.get(good, 0.0)
        _score(tally, document.id, score, min(max(chance, 0.0), 1.0))
    return [tally]


def _score(tally: Tally, item: str, stored: float, theirs: float) -> None:
    if stored == theirs:
        tally.agrees()
    elif abs(stored - theirs) <= SCORE_BOUND:
        tally.explain("rounding")
    else:
        tally.differs(item, f"the run has the score {stored:.6f}, fasttext {theirs:.6f}")
