"""The figures of evaluated tokenizers: how each is written, which is the best, and the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmcurate.base.disk.units import counted, format_percent
from llmcurate.base.pages import templates
from llmcurate.base.pages.html import plain

NONE = "-"
SERIES, LANGUAGES, SCRIPTS_DRAWN = 4, 8, 10  # tokenizers, languages, scripts in a chart
TRAINED_ON = (
    "was trained on some of these texts: it is better on them than on others; judge it on texts"
    " that it never saw"
)


PREMIUM = (
    "languages need unlike numbers of characters to say a thing: real parity needs texts that say"
    " the same in each language; on such texts compare tokens a text"
)
Bars = list[tuple[str, list[float | None]]]


def bars(tokenizers: list[dict[str, Any]], key: str = "bytes_a_token") -> Bars:
    """(label, a figure of each tokenizer): of all texts, and of the languages with most; empty
    where there is none."""
    rows = [("all texts", [t.get(key) for t in tokenizers])]
    languages = tokenizers[0]["lang"][:LANGUAGES]
    if len(languages) > 1:
        rows += [
            (plain(row["label"], 12), [t["lang"][nth].get(key) for t in tokenizers])
            for nth, row in enumerate(languages)
        ]
    return [row for row in rows if any(v is not None for v in row[1])]


def pivot_name(evaluation: dict[str, Any]) -> str:
    """The language that the others are set against, for a sentence."""
    return evaluation["pivot"] or "English"


def script_rows(tokenizers: list[dict[str, Any]], most: int) -> list[tuple[str, list[int]]]:
    """(script, tokens of it in each vocabulary), those of the most tokens first; of more than
    `most` the others are one row."""
    vocabularies = [{row["label"]: row["vocab"] for row in t["scripts"]} for t in tokenizers]
    names = {name: max(v.get(name, 0) for v in vocabularies) for v in vocabularies for name in v}
    order = sorted(names, key=lambda name: (-names[name], name))
    rows = [(name, [v.get(name, 0) for v in vocabularies]) for name in order[:most]]
    if others := order[most:]:
        sums = [sum(v.get(name, 0) for name in others) for v in vocabularies]
        rows.append((counted(len(others), "other"), sums))
    return [(script_name(name), counts) for name, counts in rows]


def script_name(label: str) -> str:
    """A script, or what stands for none, for a reader."""
    return {"Common": "digits, signs, spaces"}.get(label, label)


def whole(value: float | None) -> str:
    """A count."""
    return NONE if value is None else f"{value:,}"


def ratio(value: float | None) -> str:
    """Three decimals; one from a hundred on."""
    if value is None:
        return NONE
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.1f}"


def share(value: float | None) -> str:
    """A share of one as per cent."""
    return format_percent(value, 2)


def cut_digits(rule: str) -> str:
    """How a tokenizer cuts the digits of a number, in words."""
    words = {"single": "one by one", "right": "from the right", "left": "from the left"}
    return words.get(rule, rule)


def pages(value: float | None) -> str:
    """A number of pages."""
    return NONE if value is None else f"{value:,.1f}"


def speed(value: float | None) -> str:
    """MB/s."""
    return NONE if value is None else f"{value:.3g}"


# key, title, formatter, and which is better
CHARTS: tuple[tuple[str, str, Callable[[Any], str], str], ...] = (
    ("bytes_a_token", "Bytes a token", ratio, "More is better: the same text in fewer tokens."),
    (
        "boundary_f1",
        "Boundaries of words kept (F1)",
        ratio,
        "More is better: 1 where tokens end where words do and nowhere else.",
    ),
    ("price_a_million_characters", "Price of a million characters", ratio, "Less is better."),
    ("context_pages", "Pages of 1,800 characters in the context", pages, "More is better."),
)
# key, title, formatter, which is better (+1 more, -1 less, 0 neither)
FIGURES: tuple[tuple[str, str, Callable[[Any], str], int], ...] = (
    ("vocab", "vocabulary", whole, 0),
    ("bytes_a_token", "bytes a token", ratio, 1),
    ("characters_a_token", "characters a token", ratio, 1),
    ("nsl", "tokens over the baseline's (NSL)", ratio, -1),
    ("fertility", "tokens a word (fertility)", ratio, -1),
    ("whole_share", "words kept whole", share, 1),
    ("tokens_a_letter", "tokens a letter, scripts without spaces", ratio, -1),
    ("gini_a_byte", "Gini of languages, tokens a byte", ratio, -1),
    ("gini_a_character", "Gini of languages, a character", ratio, -1),
    ("gini_a_text", "Gini of languages, a text", ratio, -1),
    ("boundary_f1", "boundaries of words kept (F1)", ratio, 1),
    ("boundary_precision", "  precision", ratio, 1),
    ("boundary_recall", "  recall", ratio, 1),
    ("morpheme_recall", "boundaries of morphemes kept", share, 1),
    ("morpheme_precision", "  precision", share, 1),
    ("cluster_cut_share", "tokens that cut a grapheme", share, -1),
    ("only_marks_share", "tokens of marks or vowels alone", share, -1),
    ("unknown_share", "unknown tokens", share, -1),
    ("parts_share", "tokens that are parts of characters", share, -1),
    ("renyi_efficiency", "Rényi efficiency", ratio, 1),
    ("renyi_efficiency_of_used", "  of the tokens that occur", ratio, 1),
    ("used_share", "vocabulary used", share, 0),
    ("never_used", "tokens never used", whole, 0),
    ("unreachable", "tokens that no text gives", whole, -1),
    ("parts_of_characters", "tokens of parts of characters", whole, 0),
    ("white_space", "tokens of white space only", whole, 0),
    ("digits", "tokens of digits only", whole, 0),
    ("digit_groups", "digits of a number are cut", cut_digits, 0),
    ("price_a_million_characters", "price of a million characters", ratio, -1),
    ("price_a_million_words", "price of a million words", ratio, -1),
    ("context_characters", "characters in the context", whole, 1),
    ("context_words", "words in the context", whole, 1),
    ("context_pages", "pages of 1,800 characters in it", pages, 1),
    ("lost", "texts that do not come back", whole, -1),
    ("encode_mb_per_cpu_second", "encoding, MB/s of CPU time", speed, 1),
    ("decode_mb_per_cpu_second", "decoding, MB/s of CPU time", speed, 1),
)
RATES = frozenset({"encode_mb_per_cpu_second", "decode_mb_per_cpu_second"})


def rows(tokenizers: list[dict[str, Any]]) -> list[tuple[str, list[str], list[int]]]:
    """(title, a cell a tokenizer, the positions of the best) of every figure that is not missing
    everywhere. No best of one, of what reads the same in all, or of speeds, which no two runs
    share."""
    lines = []
    for key, title, format_figure, better in FIGURES:
        values = [t.get(key) for t in tokenizers]
        if all(v is None for v in values):
            continue
        cells = [format_figure(v) for v in values]
        measured = [v for v in values if v is not None]
        best: list[int] = []
        if better and len(set(cells) - {NONE}) > 1 and key not in RATES:
            top = format_figure(max(measured) if better > 0 else min(measured))
            best = [i for i, cell in enumerate(cells) if cell == top]
        lines.append((title, cells, best))
    return lines


def render(evaluation: dict[str, Any]) -> str:
    """evaluation.html."""
    drawn = evaluation["tokenizers"][:SERIES]
    return templates.render(
        "evaluate/tokenizers.html",
        evaluation=evaluation,
        rows=rows(evaluation["tokenizers"]),
        premium=PREMIUM,
        ratio=ratio,
        trained_on=TRAINED_ON,
        bars=[(bars(drawn, key), *chart) for key, *chart in CHARTS],
        scripts=script_rows(drawn, SCRIPTS_DRAWN),
        whole=whole,
        share=share,
        script_name=script_name,
        pages=pages,
        pivot=pivot_name(evaluation),
        cut_digits=cut_digits,
        series=SERIES,
    )
