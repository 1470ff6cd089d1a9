"""Evaluate tokenizers on the documents of some inputs: figures, text for the terminal, page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from curate.corpus.direct_input import DirectInput
from curate.formats.read_settings import ReadSettings
from curate.inspect.results import Computed
from curate.run.records import read_record
from curate.text.buffers import as_large_string, text_buffers
from llmcurate.base.disk.units import counted, format_percent
from llmcurate.base.errors import UsageError
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal import table

if TYPE_CHECKING:
    from tokenize_kit.judge.words import Segmentation

GROUPS = ("lang", "source")
ROWS = 500  # texts per batch: their tokens and positions are in memory
WORD_END = "\ufdd0"  # a Unicode noncharacter, for internal use only
Buffers = tuple[Any, Any, dict[str, list[str | None]]]


class Documents:
    """The documents of some inputs that have text; each call of `batches` reads them again. If
    `words` names a column with the words of each text, WORD_END is inserted after each word."""

    def __init__(
        self,
        inputs: Sequence[str],
        quiet: bool = False,
        read: ReadSettings | None = None,
        words: str | None = None,
    ) -> None:
        self._direct = DirectInput.of_texts(inputs, read, quiet)
        paths = (file.path for file in self._direct.inputs.files)
        self.files = [Path(path).resolve() for path in paths if "://" not in path]
        self._words = words

    def batches(self) -> Iterator[Buffers]:
        """Yield (texts: uint8[], offsets: int64[rows + 1], {column: labels}), in input order."""
        for batch in self._direct.batches(None):
            for first in range(0, batch.num_rows, ROWS):
                part = batch.slice(first, ROWS)
                labels = {
                    name: part.column(name).cast(pa.string()).to_pylist()
                    for name in GROUPS
                    if name in part.schema.names
                }
                texts = part.column("text")
                if self._words is not None:
                    texts = pa.array(marked(part, self._words), pa.large_string())
                yield *text_buffers(as_large_string(texts)), labels

    @property
    def tally(self) -> dict[str, int]:
        """Numbers of documents read, kept and rejected and of corrupt records in the last
        reading."""
        tally = self._direct.tally
        return {name: tally[name] for name in ("read", "kept", "rejected", "corrupt")}


def marked(batch: pa.RecordBatch, column: str) -> list[str]:
    """Return the texts with WORD_END after each of the words in `column`. Raises UsageError with a
    document's id if its words do not make up its text, apart from white space."""
    if column not in batch.schema.names:
        raise UsageError(f"--words {column}: the input has no such column")
    texts = []
    for row in batch.select(["id", "text", column]).to_pylist():
        end, parts, text = 0, [], row["text"]
        for word in _words(row[column]):
            start = text.find(word, end)
            parts += [text[end:start], word, WORD_END]
            end = start + len(word)
        parts.append(text[end:])
        between = "".join(parts[::3])
        if between.strip() or "".join(parts).replace(WORD_END, "") != text:
            raise UsageError(f"--words {column}: the words of {row['id']} do not match its text")
        texts.append("".join(parts))
    return texts


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        try:
            words = json.loads(value)
        except ValueError:
            words = None
        value = words if isinstance(words, list) else value.split()
    return [str(word) for word in value or ()]


def evaluate(
    tokenizers: list[Path],
    inputs: list[str],
    *,
    show: int = 0,
    quiet: bool = False,
    pattern: str | None = None,
    baseline: Path | None = None,
    dictionary: Path | None = None,
    separator: str | None = None,
    words: str | None = None,
    pivot: str | None = None,
    price: float | None = None,
    context: int | None = None,
    read: ReadSettings | None = None,
) -> TokenizerEvaluation:
    """Evaluate tokenizers on the documents of some inputs with `tokenize_kit.judge.compare`.

    `baseline` may be one of the tokenizers; if not, it is added as the last one. `dictionary`,
    `separator` and `words` are arguments of `segmentation`. Raises
    UsageError if a tokenizer cannot be read, no document has text, or none is in the pivot
    language.
    """
    from tokenize_kit.formats.forms import file_of
    from tokenize_kit.formats.tiktoken import is_ranks
    from tokenize_kit.judge.compare import compare

    documents = Documents(inputs, quiet, read, words)
    named = [*tokenizers, *filter(None, [baseline])]
    if pattern is not None and not any(map(is_ranks, map(file_of, named))):
        raise UsageError("--pattern is for .tiktoken files, and none is given: remove it")
    if baseline is not None and baseline not in tokenizers:
        tokenizers = [*tokenizers, baseline]
    against = None if baseline is None else tokenizers.index(baseline)
    figures = compare(
        tokenizers,
        documents.batches(),
        GROUPS,
        show,
        pattern,
        against,
        segmentation=segmentation(dictionary, separator, words),
        pivot=pivot,
        price=price,
        context=context,
    )
    first = figures["tokenizers"][0]
    if not first["bytes"]:
        refused = documents.tally["rejected"] + documents.tally["corrupt"]
        reason = f": {counted(refused, 'record')} could not be read" if refused else ""
        raise UsageError(f"no document with text in the input{reason}")
    languages = [row["label"] for row in first["lang"]]
    if pivot is not None and pivot not in languages:
        listed = ", ".join(languages[:10]) or "none, as no document has `lang`"
        raise UsageError(
            f"--pivot {pivot}: no text is in this language; the languages are {listed}"
        )
    for row, name, path in zip(figures["tokenizers"], names(tokenizers), tokenizers, strict=True):
        row["name"] = name
        row["trained_on"] = trained_on(path, documents.files)
    if against is not None:
        figures["baseline"] = figures["tokenizers"][against]["name"]
    settings = {
        "dictionary": dictionary and str(dictionary),
        "separator": separator,
        "words": words,
        "pivot": pivot,
        "price": price,
        "context": context,
    }
    return TokenizerEvaluation({"inputs": inputs, **documents.tally, **settings, **figures})


def segmentation(
    dictionary: Path | None, separator: str | None = None, words: str | None = None
) -> Segmentation:
    """Return how to find words in scripts without spaces. Raises UsageError if more than one of the
    three is given, and LlmcurateError with the dictionary's name if it cannot be read."""
    from tokenize_kit.judge.words import Segmentation
    from tokenize_kit.segment import read_dictionary

    if sum(map(bool, (dictionary, separator, words))) > 1:
        raise UsageError(
            "--dictionary, --separator and --words exclude each other: give one of them"
        )
    known = None if dictionary is None else read_dictionary(dictionary, None)
    return Segmentation(known, (WORD_END if words else separator or "").encode())


def trained_on(tokenizer: Path, files: list[Path]) -> bool:
    """Return True if the run that made the tokenizer is known to have read one of these files."""
    beside = tokenizer.resolve() if tokenizer.is_dir() else tokenizer.resolve().parent
    for folder, home in product((beside, beside.parent), (".run", "")):
        try:
            record = read_record(folder / home)
            is_maker = any(p["makes"] == "tokenizer" for p in record["products"])
            read = {Path(file["path"]).resolve() for file in record["inputs"]}
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if is_maker and any(file in read or folder / "corpus" in file.parents for file in files):
            return True
    return False


def names(paths: list[Path]) -> list[str]:
    """Return a short name for each path, all different: folder name, file stem, or the path."""
    short = []
    for path in paths:
        folder = path.name in ("tokenizer.json", "tokenizer.model")
        name = path.resolve().parent.name if folder else path.resolve().name
        short.append(
            name.removesuffix(".json").removesuffix(".model").removesuffix(".tiktoken") or str(path)
        )
    return short if len(set(short)) == len(short) else [str(p) for p in paths]


NONE = "-"
SERIES, LANGUAGES, SCRIPTS_DRAWN = 4, 8, 10  # tokenizers, languages, scripts in a chart
TRAINED_ON = (
    "was trained on some of these texts, where it does better than on others; compare on texts"
    " that it was not trained on"
)


PREMIUM = (
    "languages need different numbers of characters for the same content: use parallel texts and"
    " compare tokens per text to measure parity"
)


def script_name(label: str) -> str:
    return {"Common": "digits, signs, spaces"}.get(label, label)


def whole(value: float | None) -> str:
    return NONE if value is None else f"{value:,}"


def ratio(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.1f}"


def share(value: float | None) -> str:
    return format_percent(value, 2)


def cut_digits(rule: str) -> str:
    words = {"single": "one by one", "right": "from the right", "left": "from the left"}
    return words.get(rule, rule)


def pages(value: float | None) -> str:
    return NONE if value is None else f"{value:,.1f}"


def speed(value: float | None) -> str:
    return NONE if value is None else f"{value:.3g}"


# key, title, formatter, direction in words
CHARTS: tuple[tuple[str, str, Callable[[Any], str], str], ...] = (
    ("bytes_a_token", "Bytes per token", ratio, "More is better: the same text in fewer tokens."),
    (
        "boundary_f1",
        "Word boundaries kept (F1)",
        ratio,
        "More is better: 1 if tokens end exactly where words end.",
    ),
    ("price_a_million_characters", "Price per million characters", ratio, "Less is better."),
    ("context_pages", "Pages of 1,800 characters in the context", pages, "More is better."),
)
# key, title, formatter, which is better (+1 more, -1 less, 0 neither); a page folds all but six
FIGURES: tuple[tuple[str, str, Callable[[Any], str], int], ...] = (
    ("vocab", "vocabulary", whole, 0),
    ("bytes_a_token", "bytes per token", ratio, 1),
    ("fertility", "tokens per word (fertility)", ratio, -1),
    ("whole_share", "words kept whole", share, 1),
    ("lost", "texts not restored by decoding", whole, -1),
    ("cluster_cut_share", "tokens that split a grapheme", share, -1),
    ("characters_a_token", "characters per token", ratio, 1),
    ("nsl", "tokens over the baseline's (NSL)", ratio, -1),
    ("tokens_a_letter", "tokens per letter, scripts without spaces", ratio, -1),
    ("boundary_f1", "word boundaries kept (F1)", ratio, 1),
    ("boundary_precision", "  precision", ratio, 1),
    ("boundary_recall", "  recall", ratio, 1),
    ("only_marks_share", "tokens of only marks or vowels", share, -1),
    ("unknown_share", "unknown tokens", share, -1),
    ("parts_share", "tokens that are partial characters", share, -1),
    ("renyi_efficiency", "Rényi efficiency", ratio, 1),
    ("renyi_efficiency_of_used", "  of used tokens", ratio, 1),
    ("used_share", "vocabulary used", share, 0),
    ("never_used", "tokens never used", whole, 0),
    ("unreachable", "unreachable tokens", whole, -1),
    ("parts_of_characters", "tokens of partial characters", whole, 0),
    ("white_space", "tokens of only white space", whole, 0),
    ("digits", "tokens of only digits", whole, 0),
    ("digit_groups", "digits of a number are split", cut_digits, 0),
    ("price_a_million_characters", "price per million characters", ratio, -1),
    ("price_a_million_words", "price per million words", ratio, -1),
    ("context_characters", "characters in the context", whole, 1),
    ("context_words", "words in the context", whole, 1),
    ("context_pages", "pages of 1,800 characters in it", pages, 1),
    ("encode_mb_per_cpu_second", "encoding, MB/s of CPU time", speed, 1),
    ("decode_mb_per_cpu_second", "decoding, MB/s of CPU time", speed, 1),
)
RATES = frozenset({"encode_mb_per_cpu_second", "decode_mb_per_cpu_second"})


GROUPS_SHOWN = 20  # languages or sources printed; evaluation.json has all
SCRIPTS_SHOWN, PAIRS_SHOWN = 8, 6
NAME = 24  # columns of a name
COSTS = {
    "price_a_million_characters": "price per million characters",
    "context_pages": "pages in the context",
}
Body = list[tuple[list[str], list[int]]]  # cells, and the positions of the best among the numbers


@dataclass(frozen=True)
class TokenizerEvaluation(Computed):
    """The report on tokenizers that `evaluate` returns."""

    TEMPLATE = "evaluate/tokenizers.html"
    SHOWN: ClassVar[dict[str, Any]] = {
        "premium": PREMIUM, "trained_on": TRAINED_ON, "charted": CHARTS, "series": SERIES,
        "ratio": ratio, "whole": whole, "share": share, "pages": pages, "cut_digits": cut_digits,
        "script_name": script_name,
    }  # fmt: skip

    @property
    def tokenizers(self) -> list[dict[str, Any]]:
        return list(self.figures["tokenizers"])

    @property
    def pivot(self) -> str:
        return self.figures["pivot"] or "English"

    def bars(self, key: str = "bytes_a_token") -> list[tuple[str, list[float | None]]]:
        """Return (label, [the figure `key` of each tokenizer]) for all texts and for each language.
        The first SERIES tokenizers and LANGUAGES languages are included."""
        drawn = self.tokenizers[:SERIES]
        rows = [("all texts", [t.get(key) for t in drawn])]
        languages = drawn[0]["lang"][:LANGUAGES]
        if len(languages) > 1:
            rows += [
                (plain(row["label"], 12), [t["lang"][nth].get(key) for t in drawn])
                for nth, row in enumerate(languages)
            ]
        return [row for row in rows if any(v is not None for v in row[1])]

    def scripts(
        self, most: int = SCRIPTS_DRAWN, series: int | None = SERIES
    ) -> list[tuple[str, list[int]]]:
        """Return (script, [number of its tokens in each vocabulary]) for the `most` scripts with
        most tokens, then one such row for all other scripts. Uses the first `series` tokenizers."""
        tokenizers = self.tokenizers[:series]
        vocabularies = [{row["label"]: row["vocab"] for row in t["scripts"]} for t in tokenizers]
        names = {n: max(v.get(n, 0) for v in vocabularies) for v in vocabularies for n in v}
        order = sorted(names, key=lambda name: (-names[name], name))
        rows = [(name, [v.get(name, 0) for v in vocabularies]) for name in order[:most]]
        if others := order[most:]:
            sums = [sum(v.get(name, 0) for name in others) for v in vocabularies]
            rows.append((counted(len(others), "other"), sums))
        return [(script_name(name), counts) for name, counts in rows]

    def rows(self) -> list[tuple[str, list[str], list[int]]]:
        """Return (title of a figure, [cell per tokenizer], positions of the best cells) for each
        known figure. Speeds have no best cell, since they differ between runs."""
        lines = []
        for key, title, format_figure, better in FIGURES:
            values = [t.get(key) for t in self.tokenizers]
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

    def text(self) -> str:
        first = self.tokenizers[0]
        names = [short(t["name"]) for t in self.tokenizers]
        body: Body = [([title, *cells], best) for title, cells, best in self.rows()]
        lines = [
            f"{counted(first['texts'], 'text')}, {first['bytes']:,} bytes, {first['characters']:,}"
            " characters,"
            f" {first['words']:,} words",
            "",
            *_grid(["", *names], body),
        ]
        if any(best for _, best in body):
            lines.append("*: the best in its line")
        if "baseline" in self.figures:
            lines.append(f"baseline: {short(self.figures['baseline'])}")
        lines += self._vocabularies(names)
        lines += self._remarks()
        lines += self._groups(names)
        for nth, sample in enumerate(self.figures["shown"], 1):
            lines += ["", f"text {nth}{', its beginning' if sample['cut'] else ''}"]
            for name, cut in zip(names, sample["pieces"], strict=True):
                tokens = sum(n for _, n in cut)
                lines += [
                    "─" * 40,
                    f"{name}: {counted(tokens, 'token')}",
                    _cut(cut),
                ]
        return "\n".join(lines)

    def _remarks(self) -> list[str]:
        lines = []
        for tokenizer in self.tokenizers:
            name = short(tokenizer["name"])
            longest = ", ".join(quoted(token["text"]) for token in tokenizer["longest"][:5])
            engine = tokenizer["engine"]
            lines += ["", f"{name}: {engine} encodes; longest tokens {longest or NONE}"]
            if tokenizer["trained_on"]:
                lines.append(f"  {name} {TRAINED_ON}")
            if tokenizer["unreachable"]:
                unreachable = tokenizer["unreachable_examples"][:8]
                examples = ", ".join(quoted(t["text"]) for t in unreachable)
                count = whole(tokenizer["unreachable"])
                lines.append(f"  {count} of its tokens are never produced by any text: {examples}")
            if lost := tokenizer["first_lost"]:
                lines.append(
                    f"  {tokenizer['lost']:,} of {counted(tokenizer['texts'], 'text')} are not"
                    f" restored by decoding; first text {lost['text'] + 1:,}, at character"
                    f" {lost['character']:,}"
                    f" ({' became '.join(lost['code_points'])}):"
                )
                was, back = lost["was"][:80], lost["is"][:80]
                lines += [f"    was {quoted(was, 80)}", f"    is  {quoted(back, 80)}"]
        return lines

    def _vocabularies(self, names: list[str]) -> list[str]:
        scripts = self.scripts(SCRIPTS_SHOWN, None)
        body: Body = [([label, *map(whole, counts)], []) for label, counts in scripts]
        lines = ["", "tokens of the vocabulary by script", *_grid(["", *names], body)]
        for pair in self.figures["overlaps"][:PAIRS_SHOWN]:
            first, second = names[pair["first"]], names[pair["second"]]
            lines.append(
                f"{first} and {second} share {counted(pair['shared'], 'token')},"
                f" {share(pair['jaccard'])} of the tokens in either"
            )
        return lines

    def _groups(self, names: list[str]) -> list[str]:
        languages, sources = self.tokenizers[0]["lang"], self.tokenizers[0]["source"]
        chosen = []
        if languages:
            chosen.append(("lang", "bytes_a_token", "bytes per token by language"))
        if len(languages) > 1:
            premium = f"tokens per character over those of {self.pivot}"
            chosen.append(("lang", "premium_a_character", premium))
            if any(row["boundary_f1"] is not None for row in languages):
                chosen.append(("lang", "boundary_f1", "word boundaries kept (F1) by language"))
            chosen += [("lang", key, f"{title} by language") for key, title in COSTS.items()]
        if languages:
            chosen.append(("lang", "nsl", "tokens over the baseline's by language"))
        if len(sources) > 1:
            chosen.append(("source", "bytes_a_token", "bytes per token by source"))
        lines = []
        for group, key, title in chosen:
            if key in self.tokenizers[0][group][0]:
                lines += self._by(group, key, title, names)
                lines += [PREMIUM] if key == "premium_a_character" else []
        return lines

    def _by(self, group: str, key: str, title: str, names: list[str]) -> list[str]:
        first = self.tokenizers[0][group]
        body: Body = [
            (
                [short(row["label"]), whole(row["texts"])]
                + [ratio(t[group][i][key]) for t in self.tokenizers],
                [],
            )
            for i, row in enumerate(first[:GROUPS_SHOWN])
        ]
        rest = len(first) - GROUPS_SHOWN
        more = f" (those with the most text; {rest} more)" if rest > 0 else ""
        return ["", title + more, *_grid(["", "texts", *names], body)]


def short(name: str) -> str:
    shown = plain(name, 200).replace("\n", " ").replace("\t", " ")
    return shown if len(shown) <= NAME else "…" + shown[1 - NAME :]


def _grid(head: list[str], body: Body) -> list[str]:
    if not any(best for _, best in body):
        return table(head, [row for row, _ in body])
    cells = [
        [c + (("*" if x - 1 in best else " ") if x else "") for x, c in enumerate(row)]
        for row, best in body
    ]
    return table([head[0], *(f"{h} " for h in head[1:])], cells)


def quoted(word: str, most: int = 24) -> str:
    return f"“{plain(word, most).replace(chr(10), '↵').replace(chr(9), '→')}”"


def _cut(pieces: list[tuple[str, int]]) -> str:
    """Join pieces of (text, number of tokens) with bars; `×n` means n tokens."""
    shown = []
    for piece, tokens in pieces:
        word = plain(piece).replace("\n", "↵\n").replace("\t", "→")
        space = tokens == 0 and piece.isspace()  # most whole-word tokenizers omit spaces
        shown.append(word if tokens == 1 or space else f"{word}×{tokens}")
    return "|".join(shown)
