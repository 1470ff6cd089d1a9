"""Cards of tokenizers: figures measured on a sample of text, as JSON, Markdown and HTML.

The sample has a bounded size and does not depend on the order of documents. Texts are cut into
pieces, and the pieces with the smallest hashes (of their bytes and the seed) are kept. So a byte is
equally likely to be kept in a long and in a short document, and duplicates count as often as they
occur. Texts, patterns and tokens are escaped, so that none of their characters is read as Markdown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, asdict, dataclass, fields
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import xxhash

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.sealed_json import encode_json
from llmcurate.base.disk.units import counted
from llmcurate.base.pages.html import own_script, render
from tokenize_kit.encode.parts import pack
from tokenize_kit.judge.candidate import open_candidate, token_bytes
from tokenize_kit.judge.tally import NumberCut, Tally, Texts
from tokenize_kit.judge.words import Segmentation
from tokenize_kit.segment import Dictionary

PIECE_BYTES = 8192  # at most, so that one long document does not fill half of the sample
MOST_BYTES = 2 << 20
_PIECE_OVERHEAD = 64  # bytes charged per piece, so that there are never millions of tiny pieces


class Sample:
    """A sample of texts: call `add` for every text, then read `pieces`. The sample keeps pieces of
    at most `most` bytes in all."""

    def __init__(self, seed: int = 0, most: int = MOST_BYTES) -> None:
        self.seed = seed
        self._room = most
        self._heap: list[tuple[int, bytes]] = []  # the largest hash first
        self._limit = 1 << 64  # larger hashes do not fit

    def add(self, raw: bytes) -> None:
        """Add a text, given as valid UTF-8."""
        for first, last in pairwise(_cuts(raw)):
            piece = raw if last - first == len(raw) else raw[first:last]
            position = xxhash.xxh3_64_intdigest(piece, self.seed)
            if position >= self._limit:
                continue
            heappush(self._heap, (-position, piece))
            self._room -= len(piece) + _PIECE_OVERHEAD
            while self._room < 0:
                largest, dropped = heappop(self._heap)
                self._limit = -largest
                self._room += len(dropped) + _PIECE_OVERHEAD

    def add_rows(self, data: np.ndarray, offsets: np.ndarray) -> None:
        """Add texts. data: uint8[], concatenated texts; offsets: int64[rows + 1], their bounds."""
        for a, z in pairwise(offsets.tolist()):
            self.add(data[a:z].tobytes())

    def pieces(self) -> list[bytes]:
        """Return the kept pieces in order of their hashes."""
        return [piece for _, piece in sorted(self._heap, reverse=True)]

    def texts(self) -> list[str]:
        return [piece.decode("utf-8") for piece in self.pieces()]

    def buffers(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the kept pieces as (data: uint8[], offsets: int64[pieces + 1])."""
        return pack(self.pieces())


def _cuts(raw: bytes) -> Iterator[int]:
    at = 0
    while at < len(raw):
        yield at
        at += PIECE_BYTES
        while at < len(raw) and raw[at] & 0xC0 == 0x80:
            at -= 1
    if raw:
        yield len(raw)


@dataclass(frozen=True)
class Measured:
    """The figures of one tokenizer, measured on a sample of texts and listed in its card. Most
    names and values are those of the dict that `Tally.result` returns. Speeds are left out, so that
    a card has the same bytes on every machine. on: a description of the texts; seed: the sample's
    seed; byte_share: the share of tokens that are byte-fallback tokens (single bytes of characters
    without a token), None if the model has none; first_lost: the beginning of the first text that
    is not decoded exactly."""

    on: str
    seed: int
    texts: int
    bytes: int
    characters: int
    tokens: int
    bytes_a_token: float | None
    characters_a_token: float | None
    fertility: float | None
    whole_share: float | None
    tokens_a_letter: float | None
    unknown_share: float | None
    parts_share: float | None
    cluster_cut_share: float | None
    only_marks_share: float | None
    boundary_precision: float | None
    boundary_recall: float | None
    boundary_f1: float | None
    scripts: list[dict[str, int | str]]
    numbers: list[NumberCut]
    digit_groups: str
    indentation: list[dict[str, int]]
    used: int
    used_share: float
    unreachable: int
    lost: int
    byte_share: float | None
    first_lost: str | None


@dataclass(frozen=True)
class Shown:
    """The contents of the HTML page of a tokenizer's card. texts: the beginnings of some texts,
    each as a list of tokens; vocabulary: the bytes of each token, by id."""

    texts: list[list[bytes]]
    vocabulary: dict[int, bytes]


def measure(
    file: Path, sample: Sample, on: str, dictionary: Dictionary | None = None
) -> tuple[Measured, Shown]:
    """Measure the tokenizer in `file` on a sample. Return the figures (ratios rounded to six
    digits) and the parts of the tokenizer that the HTML page of its card shows. on: a description
    of the texts; dictionary: the list of words for scripts written without spaces."""
    tally = Tally(open_candidate(file))
    data, offsets = sample.buffers()
    starts, ends = tally.add(Texts.of(data, offsets, Segmentation(dictionary)))
    shown = Shown(
        _beginnings(data, offsets, starts, ends), token_bytes(tally.candidate, tally.vocabulary)
    )
    figures = tally.result()
    spelled, lost = sorted(tally.candidate.byte_ids), figures["first_lost"]
    figures["byte_share"] = (
        tally.counts[spelled].sum() / max(figures["tokens"], 1) if spelled else None
    )
    figures["first_lost"] = lost["was"][:40] if lost else None
    values = {field.name: figures[field.name] for field in fields(Measured)[2:]}
    values["numbers"] = [NumberCut(**row) for row in values["numbers"]]
    ratios = {k: round(float(v), 6) for k, v in values.items() if isinstance(v, float)}
    return Measured(on, sample.seed, **(values | ratios)), shown


def _beginnings(
    data: np.ndarray, offsets: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> list[list[bytes]]:
    texts = []
    for first, last in pairwise(offsets[: SHOWN_TEXTS + 1].tolist()):
        inside = (starts >= first) & (ends <= min(last, first + SHOWN_BYTES)) & (starts < ends)
        spans = zip(starts[inside].tolist(), ends[inside].tolist(), strict=True)
        texts.append([data[a:z].tobytes() for a, z in spans])
    return texts


def code_span(text: str) -> str:
    """Format any text as a Markdown code span on one line; unprintable characters are escaped."""
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    shown = "".join(escaped)
    if not shown.strip():
        shown = json.dumps(shown)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{space}{shown}{space}{fence}"


def _token_text(raw: bytes) -> str:
    text = raw.decode("utf-8", "surrogateescape").translate(_SIGNS)
    return re.sub("[\udc80-\udcff]", lambda byte: f"<{ord(byte[0]) - 0xDC00:02X}>", text)


_SIGNS = str.maketrans({" ": "␣", "\n": "↵", "\t": "→"})


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Format a Markdown table. Vertical bars in cells are escaped, since a bar would end the cell
    even within a code span."""
    lines = [head, tuple("---" for _ in head), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


# key of `measured`, title, format
_FIGURES = (
    ("bytes_a_token", "bytes per token", "{:.3f}"),
    ("characters_a_token", "characters per token", "{:.3f}"),
    ("fertility", "tokens per word (fertility)", "{:.3f}"),
    ("whole_share", "words kept whole", "{:.2%}"),
    ("tokens_a_letter", "tokens per letter, scripts without spaces", "{:.3f}"),
    ("boundary_f1", "boundaries of words kept (F1)", "{:.3f}"),
    ("cluster_cut_share", "tokens that cut a grapheme", "{:.2%}"),
    ("only_marks_share", "tokens of marks or vowels alone", "{:.2%}"),
    ("unknown_share", "unknown tokens", "{:.2%}"),
    ("byte_share", "tokens of a single byte (byte fallback)", "{:.2%}"),
    ("parts_share", "tokens that are parts of characters", "{:.2%}"),
    ("used", "tokens that occur", "{:,}"),
    ("used_share", "vocabulary used", "{:.2%}"),
    ("unreachable", "tokens that no text gives", "{:,}"),
    ("lost", "texts not decoded exactly", "{:,}"),
)


SHOWN_TEXTS, SHOWN_BYTES = 8, 400  # on the page
MOST_ROWS = 50  # in tables that grow with the corpus or the vocabulary


class Card:
    """The card of a tokenizer, a report on its origin and figures. Subclasses are dataclasses with
    the fields of the card's JSON. The JSON omits a field with a default if its value is None."""

    file: str
    algorithm: str
    vocab: int
    special_tokens: dict[str, int]
    end_of_text: str | None
    tokenizer_sha256: str
    notes: list[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def origin(self) -> str:
        """Return a sentence on where the tokenizer comes from."""
        raise NotImplementedError

    def round_trip(self) -> str:
        """Return a sentence on whether decoding returns the exact text."""
        return "Texts are normalized and decoded as by the tokenizer it was made from."

    def json(self) -> dict[str, Any]:
        left_out = {f.name for f in fields(self) if f.default is not MISSING}
        values = asdict(self).items()
        return {name: v for name, v in values if v is not None or name not in left_out}

    def write(self, file: Path, shown: Shown | None = None) -> None:
        """Write the card as JSON and Markdown; if `shown` is given, also as card.html."""
        write_atomic(file.with_suffix(".md"), self.page(file.name).encode("utf-8", "replace"))
        if shown is not None:
            write_atomic(file.with_name("card.html"), self.html(shown).encode())
        write_atomic(file, encode_json(self.json()))

    def _get(self, name: str) -> Any:
        return getattr(self, name, None)

    def page(self, name: str) -> str:
        """Return the card as Markdown; name: the name of the card's JSON file."""
        refused = (self._get("gguf") or {}).get("refused")
        parts = [
            f"# Tokenizer: {self.algorithm}, {counted(self.vocab, 'token')}",
            "\n\n".join([self.origin(), self.round_trip()]),
            self._use(),
            self._figures(),
            self._origin(),
            self._settings(),
            self._special(),
            _list("Warnings", self._get("warnings") or []),
            _list("Notes", [note for note in self.notes if note != refused]),
            f"The same data as JSON: {code_span(name)}.",
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def html(self, shown: Shown) -> str:
        """Return the card as an HTML page: figures, texts split into tokens, the longest tokens,
        and a search field."""
        sentence, figures = self.figure_rows()
        texts = {n: _token_text(raw) for n, raw in shown.vocabulary.items()}
        longest = sorted(shown.vocabulary, key=lambda n: (-len(shown.vocabulary[n]), n))
        script, policy = own_script("tokenizer_card.js")
        return render(
            "tokenizer_card.html",
            card=self,
            warnings=self._get("warnings") or [],
            figures=figures,
            measured=sentence,
            origin=[(title, str(value)) for title, value in self.origin_rows()],
            texts=[[_token_text(raw) for raw in text] for text in shown.texts if text],
            longest=[(n, texts[n], len(shown.vocabulary[n])) for n in longest[:MOST_ROWS]],
            vocabulary=[f"{n}\t{text}" for n, text in sorted(texts.items())],
            script=script,
            policy=policy,
        )

    def figure_rows(self) -> tuple[str, list[tuple[str, str]]]:
        """Return a sentence on the measured texts, and (title, value) rows of the figures."""
        figures: Measured | None = self._get("measured")
        rows = []
        if self._get("bytes_a_token_before"):
            for when in ("before", "after"):
                rows.append(
                    (f"bytes per token {when}", f"{self._get(f'bytes_a_token_{when}'):.3f}")
                )
        if not figures:
            return "", rows
        sentence = f"Measured on {figures.on}, drawn by a hash with seed {figures.seed}:"
        sentence += f" {figures.texts:,} pieces of {figures.bytes:,} bytes in all."
        if "training" in figures.on or "learned" in figures.on:
            sentence += (
                " Figures on other text are worse; `llmcurate tokenizer eval` measures them."
            )
        for key, title, form in _FIGURES:
            if (value := getattr(figures, key)) is not None:
                rows.append((title, form.format(value)))
        return sentence, rows

    def origin_rows(self) -> list[tuple[str, Any]]:
        """Return (title, value) rows on the tokenizer's sources and training."""
        names = {
            "trainer": "trainer",
            "documents": "documents",
            "bytes": "bytes of text",
            "texts_xxh3": "sum of the texts' xxh3-128",
            "extended_from": "extended from",
            "joined_with": "joined with",
            "joined_sha256": "its sha256",
            "pruned_from": "pruned from",
            "source": "converted from",
            "source_sha256": "its sha256",
            "old_tokens": "tokens before",
            "new_tokens": "new tokens",
            "vocab": "tokens",
            "merges": "merges",
            "character_coverage": "share of the text whose characters are tokens",
            "verified_texts": "texts whose ids were compared",
            "round_trip_checked": "texts encoded and decoded as a check",
            "chat_template_sha256": "sha256 of the chat template",
            "tokenizer_sha256": "sha256 of the tokenizer's file",
        }
        if self._get("pruned_from"):
            names["new_tokens"] = "tokens kept"
        rows = [(title, value) for key, title in names.items() if (value := self._get(key))]
        if sample := self._get("sample"):
            drawn = f"{sample.bytes_asked:,} bytes asked of {sample.bytes_of:,}"
            rows.append(("sample", f"{drawn}, by {sample.by}, seed {sample.seed}"))
        if words := self._get("dictionary"):
            rows.append(("dictionary", f"{words.words:,} words, sha256 {words.sha256}"))
        return rows

    def _use(self) -> str:
        file, lines = self.file, []
        if file == "tokenizer.json":
            lines += [
                "- transformers: `AutoTokenizer.from_pretrained(FOLDER)`",
                '- tokenizers: `Tokenizer.from_file("tokenizer.json")`',
            ]
        if file.endswith(".model") or self._get("sentencepiece_model"):
            model = file if file.endswith(".model") else "tokenizer.model"
            lines.append(f'- sentencepiece: `SentencePieceProcessor(model_file="{model}")`')
        if file.endswith(".gguf"):
            lines.append(f"- llama.cpp: {code_span(file)} has the vocabulary only, no model")
        else:
            command = f"llmcurate tokenizer encode corpus/ --tokenizer {self._name()} -o shards"
            lines.append(f"- token shards: {code_span(command)}")
        if gguf := self._get("gguf"):
            lines.append(_gguf(gguf))
        return _section("How to load it", "\n".join(lines))

    def _name(self) -> str:
        """Return the argument by which commands open the tokenizer: a folder or file, and for a
        .tiktoken file also the name of its pattern."""
        if not self.file.endswith(".tiktoken"):
            return "FOLDER" if self.file == "tokenizer.json" else self.file
        return f"{self.file} --pattern {self._get('pattern') or 'NAME'}"

    def _figures(self) -> str:
        sentence, rows = self.figure_rows()
        if not rows:
            return ""
        paragraphs = [sentence, table(("figure", "value"), rows)]
        measured: Measured | None = self._get("measured")
        if measured and measured.scripts:
            lines = [
                (
                    str(row["label"]),
                    *(f"{row[key]:,}" for key in ("vocab", "used", "tokens", "bytes")),
                )
                for row in measured.scripts[:MOST_ROWS]
            ]
            head = ("script", "tokens of the vocabulary", "tokens used", "uses", "bytes")
            paragraphs += ["Tokens by script:", table(head, lines)]
        return _section("Figures", *paragraphs)

    def _origin(self) -> str:
        rows = [
            (k, f"{v:,}" if isinstance(v, int) else code_span(str(v)))
            for k, v in self.origin_rows()
        ]
        paragraphs = [table(("field", "value"), rows)]
        if mixture := self._get("mixture"):
            values = mixture.values
            shown = sorted(values, key=lambda v: (-values[v].share, v))
            lines = [
                (
                    code_span(v),
                    f"{values[v].weight:g}",
                    f"{values[v].documents:,}",
                    f"{values[v].bytes:,}",
                    f"{values[v].share:.2%}",
                )
                for v in shown[:MOST_ROWS]
            ]
            by = f"by the column {code_span(mixture.column)}"
            if mixture.temperature is not None:
                by += f", temperature {mixture.temperature:g}"
            head = (mixture.column, "weight", "documents", "bytes", "share")
            paragraphs += [f"Mixture {by}:", table((code_span(head[0]), *head[1:]), lines)]
            paragraphs += _more(len(values))
        return _section("How it was made", *paragraphs)

    def _settings(self) -> str:
        if not (settings := self._get("settings")):
            return ""
        values = {k: json.dumps(v, ensure_ascii=False) for k, v in settings.items()}
        rows = [
            (code_span(k), "not set" if v == "null" else code_span(v)) for k, v in values.items()
        ]
        paragraphs = [table(("setting", "value"), rows)]
        if regex := self._get("regex"):
            parts = "\n".join(f"{n}. {code_span(part)}" for n, part in enumerate(regex, 1))
            paragraphs += ["Text is split by these expressions, in this order:", parts]
        return _section("Settings", *paragraphs)

    def _special(self) -> str:
        special = self.special_tokens
        if not special:
            return _section("Special tokens", "None.")
        ordered = sorted(special.items(), key=lambda pair: pair[1])
        rows = [(code_span(token), str(number)) for token, number in ordered[:MOST_ROWS]]
        end = self.end_of_text
        sentence = f"{code_span(end)} ends a document." if end else "No token ends a document."
        sentence += (
            " In documents, `llmcurate` encodes the spelling of these tokens as ordinary text."
        )
        return _section(
            "Special tokens", sentence, table(("token", "id"), rows), *_more(len(special))
        )


def _section(title: str, *paragraphs: str) -> str:
    return "\n\n".join([f"## {title}", *paragraphs])


def _list(title: str, lines: list[str]) -> str:
    return _section(title, "\n".join(f"- {code_span(line)}" for line in lines)) if lines else ""


def _gguf(terms: dict[str, str]) -> str:
    if "refused" in terms:
        reason = code_span(terms["refused"])
        return f"- {reason}" if "llama.cpp" in reason else f"- llama.cpp cannot load it: {reason}"
    names = ", ".join(f"{code_span(key)} {code_span(value)}" for key, value in terms.items())
    return f"- llama.cpp: `llmcurate tokenizer convert FOLDER --to gguf -o tok.gguf` ({names})"


def _more(count: int) -> list[str]:
    return [f"{count - MOST_ROWS:,} more are in the JSON file."] if count > MOST_ROWS else []
