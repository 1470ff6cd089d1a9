"""Cards of tokenizers: figures, measured on a sample of text as `llmcurate tokenizer eval` gives
them, and a page in Markdown, for who gets the folder and nothing else.

The sample has bounded size and no order of documents changes it. Texts are cut into pieces, a piece
is known by a hash of its bytes and the seed, and those with the smallest hashes are kept: a long
document is no more likely to be in the sample than short ones of the same size, and copies count as
often as they come. What the page shows is in the JSON beside it; a text of a corpus, a pattern or a
token is shown so that no character of it is Markdown.
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

PIECE_BYTES = 8192  # of a piece at most, so that a long document is not half of the sample
MOST_BYTES = 2 << 20
_A_PIECE = 64  # counted for each, so that tiny ones are not millions


class Sample:
    """`add` texts, then read `pieces`. Holds `most` bytes of pieces at most."""

    def __init__(self, seed: int = 0, most: int = MOST_BYTES) -> None:
        self.seed = seed
        self._room = most
        self._heap: list[tuple[int, bytes]] = []  # the largest hash first
        self._limit = 1 << 64  # hashes from here on did not fit

    def add(self, raw: bytes) -> None:
        """A text, as valid UTF-8."""
        for first, last in pairwise(_cuts(raw)):
            piece = raw if last - first == len(raw) else raw[first:last]
            position = xxhash.xxh3_64_intdigest(piece, self.seed)
            if position >= self._limit:
                continue
            heappush(self._heap, (-position, piece))
            self._room -= len(piece) + _A_PIECE
            while self._room < 0:
                largest, gone = heappop(self._heap)
                self._limit = -largest
                self._room += len(gone) + _A_PIECE

    def add_rows(self, data: np.ndarray, offsets: np.ndarray) -> None:
        """Texts as buffers: uint8[], int64[rows + 1]."""
        for a, z in pairwise(offsets.tolist()):
            self.add(data[a:z].tobytes())

    def pieces(self) -> list[bytes]:
        """The kept pieces, in order of their hashes."""
        return [piece for _, piece in sorted(self._heap, reverse=True)]

    def texts(self) -> list[str]:
        return [piece.decode("utf-8") for piece in self.pieces()]

    def buffers(self) -> tuple[np.ndarray, np.ndarray]:
        """(data: uint8[], offsets: int64[pieces + 1])."""
        return pack(self.pieces())


def _cuts(raw: bytes) -> Iterator[int]:
    """The bounds of pieces: as long as possible, and between characters."""
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
    """Figures of a tokenizer on texts: those of `Tally.result` without speeds, for a card has the
    same bytes wherever it is made.

    on: what the texts are; seed: of their sample; byte_share: the share of tokens of a single byte
    that a missing character is spelled in, None where the model has none; first_lost: the beginning
    of the first text that does not come back.
    """

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
    """What the page of a card shows of a tokenizer. texts: the beginnings of some texts as their
    tokens; vocabulary: the bytes that each token stands for, by its id."""

    texts: list[list[bytes]]
    vocabulary: dict[int, bytes]


def measure(
    file: Path, sample: Sample, on: str, dictionary: Dictionary | None = None
) -> tuple[Measured, Shown]:
    """The figures of a tokenizer's file, in which ratios have six digits, and what its page shows.
    dictionary: of words of scripts without spaces."""
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
    """The tokens of the first SHOWN_BYTES of each of the first SHOWN_TEXTS texts."""
    texts = []
    for first, last in pairwise(offsets[: SHOWN_TEXTS + 1].tolist()):
        inside = (starts >= first) & (ends <= min(last, first + SHOWN_BYTES)) & (starts < ends)
        spans = zip(starts[inside].tolist(), ends[inside].tolist(), strict=True)
        texts.append([data[a:z].tobytes() for a, z in spans])
    return texts


def code_span(text: str) -> str:
    """Any text as a code span on one line; what is no printable character is escaped."""
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    shown = "".join(escaped)
    if not shown.strip():
        shown = json.dumps(shown)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{space}{shown}{space}{fence}"


def _token_text(raw: bytes) -> str:
    """A token as a page shows it on one line: blanks, tabs and line ends as signs, bytes that are
    no whole character in hexadecimal."""
    text = raw.decode("utf-8", "surrogateescape").translate(_SIGNS)
    return re.sub("[\udc80-\udcff]", lambda byte: f"<{ord(byte[0]) - 0xDC00:02X}>", text)


_SIGNS = str.maketrans({" ": "␣", "\n": "↵", "\t": "→"})


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Cells are Markdown; a bar in one, in code as well, would end it."""
    lines = [head, tuple("---" for _ in head), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


# key of `measured`, title, how it is written
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
    ("lost", "texts that do not come back exactly", "{:,}"),
)


SHOWN_TEXTS, SHOWN_BYTES = 8, 400  # on the page
MOST_ROWS = 50  # of a table whose length the corpus or the vocabulary decides


class Card:
    """The card of a tokenizer: a dataclass whose fields are its JSON, in their order. A field with
    a default is left out where it has no value."""

    file: str
    algorithm: str
    vocab: int
    special_tokens: dict[str, int]
    end_of_text: str | None
    tokenizer_sha256: str
    notes: list[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def origin(self) -> str:
        """The origin of the tokenizer, in a sentence."""
        raise NotImplementedError

    def round_trip(self) -> str:
        """Return whether texts come back."""
        return "A text is prepared for it, and comes back, as by the tokenizer it was made from."

    def json(self) -> dict[str, Any]:
        """What its file holds."""
        left_out = {f.name for f in fields(self) if f.default is not MISSING}
        values = asdict(self).items()
        return {name: v for name, v in values if v is not None or name not in left_out}

    def write(self, file: Path, shown: Shown | None = None) -> None:
        """Writes the card as JSON, after its page in Markdown and, with what it shows, in HTML."""
        write_atomic(file.with_suffix(".md"), self.page(file.name).encode("utf-8", "replace"))
        if shown is not None:
            write_atomic(file.with_name("card.html"), self.html(shown).encode())
        write_atomic(file, encode_json(self.json()))

    def _get(self, name: str) -> Any:
        """The value of a field; None where this kind of card has none."""
        return getattr(self, name, None)

    def page(self, name: str) -> str:
        """The card as Markdown; name: of its JSON."""
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
            f"All of this, for programs: {code_span(name)}.",
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def html(self, shown: Shown) -> str:
        """The card as a page: figures, texts in their tokens, long tokens, a search."""
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
        """(on what they were measured, (title, value) of each)."""
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
            sentence += " On other text they are worse: `llmcurate tokenizer eval` measures there."
        for key, title, form in _FIGURES:
            if (value := getattr(figures, key)) is not None:
                rows.append((title, form.format(value)))
        return sentence, rows

    def origin_rows(self) -> list[tuple[str, Any]]:
        """(title, value) of what it was made of and by."""
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
            "new_tokens": "tokens new",
            "vocab": "tokens",
            "merges": "merges",
            "character_coverage": "share of the text whose characters are tokens",
            "verified_texts": "texts on which ids were compared",
            "round_trip_checked": "texts tried for coming back",
            "chat_template_sha256": "sha256 of the chat template",
            "tokenizer_sha256": "sha256 of the tokenizer's file",
        }
        if self._get("pruned_from"):
            names["new_tokens"] = "tokens that stay"
        rows = [(title, value) for key, title in names.items() if (value := self._get(key))]
        if sample := self._get("sample"):
            drawn = f"{sample.bytes_asked:,} bytes asked of {sample.bytes_of:,}"
            rows.append(("sample", f"{drawn}, by {sample.by}, seed {sample.seed}"))
        if words := self._get("dictionary"):
            rows.append(("dictionary", f"{words.words:,} words, sha256 {words.sha256}"))
        return rows

    def _use(self) -> str:
        """The ways to load the file that lies beside the card."""
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
            lines.append(f"- llama.cpp: {code_span(file)} is the vocabulary alone, without a model")
        else:
            command = f"llmcurate tokenizer encode corpus/ --tokenizer {self._name()} -o shards"
            lines.append(f"- token shards: {code_span(command)}")
        if gguf := self._get("gguf"):
            lines.append(_gguf(gguf))
        return _section("How to load it", "\n".join(lines))

    def _name(self) -> str:
        """The argument of a command: ranks need the pattern that their file lacks."""
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
            head = ("script", "tokens of the vocabulary", "of them used", "uses", "bytes")
            paragraphs += ["Tokens by the script of their letters:", table(head, lines)]
        return _section("Figures", *paragraphs)

    def _origin(self) -> str:
        rows = [
            (k, f"{v:,}" if isinstance(v, int) else code_span(str(v)))
            for k, v in self.origin_rows()
        ]
        paragraphs = [table(("what", "value"), rows)]
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
            (code_span(k), "not given" if v == "null" else code_span(v)) for k, v in values.items()
        ]
        paragraphs = [table(("setting", "as given"), rows)]
        if regex := self._get("regex"):
            parts = "\n".join(f"{n}. {code_span(part)}" for n, part in enumerate(regex, 1))
            paragraphs += ["Text is cut by these expressions, one after the other:", parts]
        return _section("Settings", *paragraphs)

    def _special(self) -> str:
        special = self.special_tokens
        if not special:
            return _section("Special tokens", "None.")
        ordered = sorted(special.items(), key=lambda pair: pair[1])
        rows = [(code_span(token), str(number)) for token, number in ordered[:MOST_ROWS]]
        end = self.end_of_text
        sentence = f"{code_span(end)} ends a document." if end else "None ends a document."
        sentence += " Their spelling in a text stays text, where `llmcurate` encodes."
        return _section(
            "Special tokens", sentence, table(("token", "id"), rows), *_more(len(special))
        )


def _section(title: str, *paragraphs: str) -> str:
    return "\n\n".join([f"## {title}", *paragraphs])


def _list(title: str, lines: list[str]) -> str:
    return _section(title, "\n".join(f"- {code_span(line)}" for line in lines)) if lines else ""


def _gguf(terms: dict[str, str]) -> str:
    if "refused" in terms:
        return f"- llama.cpp cannot load it: {code_span(terms['refused'])}"
    names = ", ".join(f"{code_span(key)} {code_span(value)}" for key, value in terms.items())
    return f"- llama.cpp: `llmcurate tokenizer convert FOLDER --to gguf -o tok.gguf` ({names})"


def _more(count: int) -> list[str]:
    return [f"{count - MOST_ROWS:,} more are in the JSON."] if count > MOST_ROWS else []
