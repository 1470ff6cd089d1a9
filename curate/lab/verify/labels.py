"""Check of `language` and `quality` with fastText, which scores the sampled documents again."""

from __future__ import annotations

import re
from typing import Any

from curate.lab.verify.finished_run import FinishedRun, model_at
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
        tallies += _check(run, step, model, isinstance(step, Language) and step is languages[-1])
    return tallies


def _check(run: FinishedRun, step: Language | Quality, model: Any, labelled: bool) -> list[Tally]:
    """Compare the scores of a step, and if it is `labelled` also the language of the documents."""
    from curate.scoring.quality.model import good_label

    labels = Tally("fasttext", f"{step.label}: labels")
    scores = Tally("fasttext", f"{step.label}: scores")
    good = "" if isinstance(step, Language) else good_label(step._path(), step.score_label)
    for document in run.sample:
        score = document.row.get(f"{step.label}.score")
        if score is None:
            continue
        try:
            text = run.text_before(document, step.label)
        except ValueError as error:
            scores.differs(document.id, str(error))
            continue
        if text is None:
            continue
        if isinstance(step, Language):
            text = line(text[: step.max_chars] if step.max_chars else text)
        else:
            text = line(" ".join(text.strip().splitlines()))
        if not text.strip(_SPACE):
            scores.explain("no_word") if score == 0.0 else scores.differs(
                document.id, f"a text without words has the score {score}, expected 0"
            )
            continue
        best = model.predict(text + "\n", 2 if isinstance(step, Language) else -1, 0.0, "strict")
        names = [label.removeprefix("__label__") for _, label in best]
        chances = {name: chance for name, (chance, _) in zip(names, best, strict=True)}
        chance = chances.get(good or names[0], 0.0)
        theirs = min(max(chance, 0.0), 1.0)
        scores.compare_numbers(document.id, score, theirs, SCORE_BOUND)
        if not labelled:
            continue
        stored = document.row["lang"]
        tie = len(best) > 1 and chance - best[1][0] <= SCORE_BOUND
        if stored != names[0] and tie and stored == names[1]:
            labels.explain("near_tie")
        else:
            labels.compare(document.id, stored, names[0])
    return [labels, scores] if labelled else [scores]
