"""The study of vocabulary sizes: bytes a token against the parameters of the embedding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast, get_args

from curate.formats.read_settings import ReadSettings
from curate.inspect.results import Computed
from curate.inspect.tokenizers import Documents, ratio, segmentation, share, whole
from llmcurate.base.disk.units import counted, parse_count
from llmcurate.base.errors import UsageError
from llmcurate.base.pages import html
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
    """Compares vocabularies of these sizes, with commas between."""
    from tokenize_kit.judge.candidate import texts_of
    from tokenize_kit.lab.study import study as run
    from tokenize_kit.pattern.named import Digits

    if digits not in get_args(Digits):
        raise UsageError(f"--digits {digits}: choose one of {', '.join(get_args(Digits))}")
    try:
        vocabs = [int(parse_count(size)) for size in sizes.split(",")]
    except ValueError:
        raise UsageError(f"--vocab {sizes}: give numbers with commas between") from None
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


HEAD = ("vocabulary", "bytes a token", "saved", "parameters", "words whole", "graphemes", "F1")
TERMS = (
    "saved: of the tokens, by a doubling; parameters: of the embedding;",
    "graphemes: tokens that cut one; F1: of boundaries of words",
)
# Drawn beside bytes a token: key, title.
CURVES = (
    ("whole_share", "Words kept whole"),
    ("cluster_cut_share", "Tokens that cut a grapheme"),
    ("boundary_f1", "Boundaries of words kept (F1)"),
)


class TokenizerStudy(Computed):
    """figures: of `study`."""

    NAME = "study"

    def rows(self) -> list[list[str]]:
        """A row a vocabulary."""
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
        """The size that is recommended, and why."""
        rows, worth = self.figures["rows"], self.figures["worth"]
        advice = [
            f"recommended: {self.figures['recommended']:,}, the last size up to which every"
            f" doubling saved {share(worth)} of the tokens or more"
        ]
        if self.figures["beyond"]:
            advice[0] += "; a larger one may be worth it too"
        last = rows[-1]
        if last["vocab"] < last["asked"]:
            advice.append(f"the corpus gives no more than {counted(last['vocab'], 'token')}")
        return advice

    def text(self) -> str:
        figures = self.figures
        about = (
            f"learned from {counted(figures['learned_from'], 'text')}, measured on"
            f" {figures['measured_on']:,} others ({figures['measured_bytes']:,} bytes); embeddings"
            f" {figures['width']:,} wide"
        )
        lines = table(HEAD, self.rows(), left=())
        return "\n".join([about, "", *lines, *TERMS, "", *self.advice()])

    def page(self) -> str:
        rows = self.figures["rows"]
        ticks: list[int] = []  # that have room: each half as large again as the one before
        for row in rows:
            if not ticks or row["vocab"] >= 1.5 * ticks[-1]:
                ticks.append(row["vocab"])
        curves = [
            (title, [(row["vocab"], row[key]) for row in rows])
            for key, title in CURVES
            if all(row[key] is not None for row in rows)
        ]
        return html.render(
            "evaluate/study.html",
            study=self.figures,
            curves=curves,
            head=HEAD,
            rows=self.rows(),
            ticks=ticks,
            advice=self.advice(),
        )
