"""A study of vocabulary sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, cast, get_args

from curate.formats.read_settings import ReadSettings
from curate.inspect.results import Computed
from curate.inspect.tokenizers import (
    Documents,
    ratio,
    segmentation,
    share,
    whole,
)
from llmcurate.base.disk.units import counted, parse_count
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import table


def study(
    inputs: list[str],
    sizes: str,
    digits: str,
    width: int,
    worth: float,
    dictionary: Path | None = None,
    read: ReadSettings | None = None,
    quiet: bool = False,
) -> TokenizerStudy:
    """Compare BPE vocabularies of several sizes. `sizes` are numbers of tokens, separated by
    commas; `digits` names a rule for splitting digits; `width` is the width of the embedding. Each
    step to the next larger size saves a share of the tokens per doubling of the vocabulary. The
    recommended size is the last one before this share falls below `worth`. Raises UsageError for
    wrong sizes or digits."""
    from tokenize_kit.judge.candidate import texts_of
    from tokenize_kit.lab.study import study as run
    from tokenize_kit.pattern.named import Digits

    if digits not in get_args(Digits):
        raise UsageError(f"--digits {digits}: choose one of {', '.join(get_args(Digits))}")
    try:
        vocabs = [int(parse_count(size)) for size in sizes.split(",")]
    except ValueError:
        raise UsageError(f"--vocab {sizes}: give sizes separated by commas") from None
    documents = Documents(inputs, quiet, read)

    def texts() -> Iterator[str]:
        for data, offsets, _ in documents.batches():
            yield from texts_of(data, offsets)

    comparison = run(
        texts(),
        vocabs,
        digits=cast(Digits, digits),
        width=width,
        worth=worth,
        segmentation=segmentation(dictionary),
    )
    return TokenizerStudy({"inputs": inputs, **documents.tally, "digits": digits, **comparison})


HEAD = ("vocabulary", "bytes per token", "saved", "parameters", "words whole", "graphemes", "F1")
TERMS = (
    "saved: share of tokens saved by doubling the size; parameters: of the embedding;",
    "graphemes: tokens that cut a grapheme; F1: of word boundaries",
)
# (key, title) of the curves that are drawn next to bytes per token.
CURVES = (
    ("whole_share", "Words kept whole"),
    ("cluster_cut_share", "Tokens that cut a grapheme"),
    ("boundary_f1", "Boundaries of words kept (F1)"),
)


class TokenizerStudy(Computed):
    """The report on vocabulary sizes. `figures` are those that `study` computes."""

    NAME = "study"
    TEMPLATE = "evaluate/study.html"
    SHOWN: ClassVar[dict[str, Any]] = {"head": HEAD}

    def rows(self) -> list[list[str]]:
        return [
            [
                whole(row["vocab"]),
                ratio(row["bytes_a_token"]),
                share(row["saved"]),
                whole(row["embedding_parameters"]),
                share(row["whole_share"]),
                share(row["cluster_cut_share"]),
                ratio(row["boundary_f1"]),
            ]
            for row in self.figures["rows"]
        ]

    def advice(self) -> list[str]:
        rows, worth = self.figures["rows"], self.figures["worth"]
        advice = [
            f"recommended: {self.figures['recommended']:,}, the largest size up to which every"
            f" doubling saved at least {share(worth)} of the tokens"
        ]
        if self.figures["beyond"]:
            advice[0] += "; a larger one may be worth it too"
        last = rows[-1]
        if last["vocab"] < last["asked"]:
            advice.append(f"the corpus yields only {counted(last['vocab'], 'token')}")
        return advice

    def text(self) -> str:
        figures = self.figures
        about = (
            f"learned from {counted(figures['learned_from'], 'text')}, measured on"
            f" {figures['measured_on']:,} others ({figures['measured_bytes']:,} bytes); embedding"
            f" width {figures['width']:,}"
        )
        lines = table(HEAD, self.rows(), left=())
        return "\n".join([about, "", *lines, *TERMS, "", *self.advice()])

    def ticks(self) -> list[int]:
        """Return the sizes to label on an axis: each is at least 1.5 times the previous one."""
        ticks: list[int] = []
        for row in self.figures["rows"]:
            if not ticks or row["vocab"] >= 1.5 * ticks[-1]:
                ticks.append(row["vocab"])
        return ticks

    def curves(self) -> list[tuple[str, list[tuple[int, float]]]]:
        rows = self.figures["rows"]
        return [
            (title, [(row["vocab"], row[key]) for row in rows])
            for key, title in CURVES
            if all(row[key] is not None for row in rows)
        ]
