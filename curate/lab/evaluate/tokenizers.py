"""Differences of two tokenizers, and a study of vocabulary sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast, get_args

from curate.formats.read_settings import ReadSettings
from curate.inspect.results import Computed
from curate.inspect.tokenizers import (
    NONE,
    Documents,
    names,
    quoted,
    ratio,
    script_name,
    segmentation,
    share,
    short,
    whole,
)
from llmcurate.base.disk.units import counted, parse_count
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import fit_note, table, width


def diff(
    paths: tuple[Path, Path],
    inputs: list[str],
    *,
    quiet: bool = False,
    pattern: str | None = None,
    dictionary: Path | None = None,
    read: ReadSettings | None = None,
) -> TokenizerDiff:
    """Return the report on how two tokenizers differ, computed by `tokenize_kit.lab.diff`. Raises
    UsageError if a tokenizer cannot be read."""
    from tokenize_kit.formats.forms import file_of
    from tokenize_kit.formats.tiktoken import is_ranks
    from tokenize_kit.lab.diff import diff as run

    documents = Documents(inputs, quiet, read) if inputs else None
    if pattern is not None and not any(map(is_ranks, map(file_of, paths))):
        raise UsageError("--pattern is for .tiktoken files, and none is given; leave it out")
    figures = run(
        *paths,
        documents.batches() if documents else (),
        pattern=pattern,
        segmentation=segmentation(dictionary),
    )
    counts = documents.tally if documents else {}
    return TokenizerDiff({"names": names(list(paths)), "inputs": inputs, **counts, **figures})


# (key of a tokenizer's figures, title, format)
FIGURES = (
    ("vocab", "vocabulary", whole),
    ("tokens", "tokens of the texts", whole),
    ("bytes_a_token", "bytes per token", ratio),
    ("fertility", "tokens per word (fertility)", ratio),
    ("boundary_f1", "boundaries of words kept (F1)", ratio),
    ("cluster_cut_share", "tokens that cut a grapheme", share),
)
SCRIPTS_SHOWN, SETTINGS_SHOWN, CUTS_SHOWN, TOKENS_SHOWN = 6, 4, 8, 6
VALUE = 28  # terminal columns of a setting, a cut or a token


@dataclass(frozen=True)
class TokenizerDiff(Computed):
    """The report on the differences of two tokenizers. `figures` has the result of
    `tokenize_kit.lab.diff`, the tokenizers' names and the inputs."""

    NAME = "diff"
    TEMPLATE = "evaluate/diff.html"
    SHOWN: ClassVar[dict[str, Any]] = {"share": share, "script_name": script_name}

    def rows(self) -> list[list[str]]:
        both = self.figures["tokenizers"]
        rows = [
            [title, *(form(tokenizer[key]) for tokenizer in both)]
            for key, title, form in FIGURES
            if key == "vocab" or (self.figures["texts"] and any(t[key] is not None for t in both))
        ]
        lacks = [whole(self.figures[side]) for side in ("first", "second")]
        rows.insert(1, ["tokens that the other lacks", *lacks])
        return rows

    def order(self) -> str:
        """Return a sentence that says if the orders of merges (BPE) or the scores (Unigram) agree,
        or an empty string for two tokenizers that have neither."""
        order = self.figures["order"]
        if order["kind"] == "scores":
            return (
                f"scores: {whole(order['unlike'])} of {counted(order['shared'], 'shared token')}"
                " have different scores"
            )
        if order["kind"] != "merges":
            return "merges, scores: models of different kinds" if order["kind"] == "unlike" else ""
        if order["same_until"] == order["first"] == order["second"]:
            return f"merges: the same {whole(order['first'])}"
        same = "the same" if order["same_order"] else "a different"
        return (
            f"merges: the first {whole(order['same_until'])} are the same;"
            f" {counted(order['shared'], 'shared token')}, in {same} order"
        )

    def text(self) -> str:
        first, second = (short(name) for name in self.figures["names"])
        lines = table(["", first, second], self.rows())
        scripts = [
            [script_name(row["label"]), *(whole(row[side]) for side in ("first", "second", "both"))]
            for row in self.figures["scripts"]
        ]
        shown = scripts[:SCRIPTS_SHOWN]
        head = ["tokens by script", f"only {first}", f"only {second}", "both"]
        total = ["all", *(whole(self.figures[side]) for side in ("first", "second", "both"))]
        lines += ["", *table(head, [*shown, total])]
        if len(scripts) > len(shown):
            lines.append(f"{counted(len(scripts) - len(shown), 'script')} more")
        lines += ["", *self._settings()]
        for side, name in enumerate((first, second)):
            tokens = [quoted(token["text"], VALUE) for token in self.figures["only"][side]]
            most = "used most" if self.figures["texts"] else "the first"
            line = fit_note(f"only {name}, {most}: {', '.join(tokens)}", width())
            lines += [line] if tokens else []
        return "\n".join([*lines, *self._cuts(first, second)])

    def _settings(self) -> list[str]:
        ids = self.figures["ids"]
        line = f"ids: the same for {counted(ids['same'], 'shared token')}, different for"
        line += f" {whole(ids['moved'])}"
        if ids["moved"]:
            moved = ids["examples"][0]
            line += f", such as {quoted(moved['text'])} {moved['first']} and {moved['second']}"
        lines = [line, *filter(None, [self.order()])]
        special = [
            f"{quoted(row['text'])} {number(row['first'])} and {number(row['second'])}"
            for row in self.figures["special"]
        ]
        lines.append(fit_note(f"special tokens: {', '.join(special) or 'the same'}", width()))
        settings = self.figures["settings"]
        lines.append(f"settings that differ: {len(settings)}" if settings else "settings: the same")
        for row in settings[:SETTINGS_SHOWN]:
            values = (
                NONE if row[s] is None else quoted(row[s], VALUE) for s in ("first", "second")
            )
            lines.append(f"  {row['name']}: {' and '.join(values)}")
        return lines

    def _cuts(self, first: str, second: str) -> list[str]:
        texts = self.figures["texts"]
        if texts is None:
            return []
        of = "cut differently: " + ", ".join(
            f"{share(texts[f'unlike_{unit}'] / texts[unit])} of {name}"
            for unit, name in (("texts", "the texts"), ("words", "words"), ("bytes", "bytes"))
            if texts[unit]
        )
        rows = [
            [
                whole(row["uses"]),
                *(quoted("|".join(row[side]), VALUE) for side in ("first", "second")),
            ]
            for row in texts["examples"][:CUTS_SHOWN]
        ]
        lines = ["", of]
        return [*lines, *table(["times", first, second], rows, left=(1, 2))] if rows else lines


def number(value: int | None) -> str:
    return NONE if value is None else str(value)


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
