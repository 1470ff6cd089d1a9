"""evaluate.html: what methods found of what was planted, as one self-contained page."""

from __future__ import annotations

from urllib.parse import quote as quoted

from curate.dedup.minhash.banding import predicted
from curate.inspect.evaluate.dedups import Evaluation
from curate.inspect.evaluate.dedups_scoring import FOUND, MethodScore
from curate.inspect.evaluate.dedups_terminal import about, title
from curate.inspect.report.page import frame
from curate.pages import charts
from curate.pages.html import count, lead, name, section, shown, table
from curate.run.funnel import amount
from curate.terminal.tables import percent

CURVE = [0.4 + n / 100 for n in range(61)]


def render(found: Evaluation) -> str:
    """The page of an evaluation."""
    which = ", ".join(shown(i) for i in found.inputs[:5])
    head = (
        f"<h1>Dedup methods on planted copies</h1><p class=lead>{about(found)}, from {which}. Each"
        " method ran over the corpus as it is and with the plants; what is said here is the"
        " difference, so that copies which were there before do not count.</p>"
    )
    chapters = [_recall(found), _curves(found), _precision(found), _settings(found)]
    return frame("Dedup methods on planted copies", head, chapters, "For programs: evaluate.json.")


def _recall(found: Evaluation) -> tuple[str, str, str]:
    head = ["planted", "number"]
    for score in found.scores:
        head += [_link(score), *(["theory"] if score.method in found.curves else [])]
    body = []
    for nth, kind in enumerate(found.scores[0].kinds):
        row = [shown(title(kind)), count(kind.planted + kind.already)]
        for score in found.scores:
            mine = score.kinds[nth]
            row.append(
                percent(mine.recall) + (f"<small>of {mine.planted}</small>" if mine.already else "")
            )
            if score.method in found.curves:
                row.append("" if mine.expected is None else percent(mine.expected))
        body.append(row)
    return section(
        "recall",
        "Found",
        lead(
            f"The share of plants of which at least {FOUND:.0%} of one of the two copies is gone."
            " Near copies are documents with single words exchanged, at the similarity of their"
            " sets of word 5-grams that stands behind them as measured. A paragraph of one document"
            " stands in another as a line of its own; a substring of 300 to 1,000 characters in the"
            " middle of its text. A smaller number under a share: the method removes the others'"
            " originals anyway."
        ),
        table(head, body, numbers=range(1, len(head))),
    )


def _link(score: MethodScore) -> str:
    place = quoted(f"runs/{score.method.replace(' ', '')}/after/report.html")
    return f'<a href="{place}">{name(score.method)}</a>'


def _curves(found: Evaluation) -> tuple[str, str, str]:
    cards = []
    for score in found.scores:
        points = sorted(
            (k.similarity, k.recall)
            for k in score.kinds
            if k.similarity is not None and k.recall is not None
        )
        if len(points) < 2:
            continue
        if score.method in found.curves:
            bands, rows = found.curves[score.method]
            lines = [[(s, predicted(bands, rows, s)) for s in CURVE], points]
            said = f"line: the S-curve of {bands} bands of {rows} rows; dots: found"
        else:
            lines = [points]
            said = "found"
        chart = charts.curve(lines, f"found by similarity, {score.method}", "similarity")
        cards.append(
            f"<figure class=card><h3>{name(score.method)}</h3>{chart}"
            f"<figcaption>{said}</figcaption></figure>"
        )
    return section(
        "similarity",
        "Found by similarity",
        lead("Whole and near copies: the share found over the Jaccard similarity of the two."),
        f"<div class=cards>{''.join(cards)}</div>" if cards else "",
    )


def _precision(found: Evaluation) -> tuple[str, str, str]:
    body = [
        [
            name(s.method),
            count(s.right_documents),
            count(s.false_documents),
            percent(s.precision),
            amount(s.right_bytes),
            amount(s.false_bytes),
            percent(s.byte_precision),
        ]
        for s in found.scores
    ]
    head = ["method", "documents", "false", "precision", "text", "false", "precision"]
    return section(
        "precision",
        "Precision",
        lead(
            "Of what went because of the plants: documents that were planted copies (or their"
            " originals), and others; text of planted copies, and other text. Methods that cut"
            " passages drop a document only where little is left of it."
        ),
        table(head, body, numbers=range(1, 7)),
    )


def _settings(found: Evaluation) -> tuple[str, str, str]:
    if not found.sets:
        return section("settings", "Settings")
    sets = "".join(f"<p><code>--set {shown(s)}</code></p>" for s in found.sets)
    return section("settings", "Settings", sets)
