"""The encoder of a tokenizer.json: our kernels if they give the library's ids, otherwise the
library.

The kernels support byte-level BPE (byte_bpe.py), the forms of Unigram and character BPE that
converters write (T5, XLM-R, Llama, Mistral, Gemma) and the Unigram trained here. For all others,
Encoder.reason names the unsupported feature. If the kernels are used, the library still encodes
rows that its normalizer might treat differently (normalize.find_odd).
"""

from __future__ import annotations

import base64
import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from llmcurate.base.errors import RunFailed
from llmcurate.base.kernels import read_only
from llmcurate.base.tokenizer_file import panicked
from tokenize_kit.encode.byte_bpe import ByteEncoder, Plan, read_plan
from tokenize_kit.encode.char_bpe import Merges, encode_characters, make_char_bpe, make_symbols
from tokenize_kit.encode.normalize import (
    Charsmap,
    Normalizer,
    cluster_table,
    find_odd,
    form_table,
    make_normalizer,
    no_charsmap,
    normalize_rows,
    read_charsmap,
)
from tokenize_kit.encode.parts import NOTHING_SETTLED, encode_rows
from tokenize_kit.encode.unigram import PENALTY, encode_unigram, make_unigram
from tokenize_kit.encode.words import (
    WORDS,
    CachePool,
    Crossings,
    Fallback,
    byte_fallback,
    count_marked,
    crossings,
)
from tokenize_kit.formats.forms import SPACE
from tokenize_kit.formats.tokenizer_json import (
    Model,
    Parts,
    Step,
    Unsupported,
    flat_steps,
    parts_of,
)

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_RUNS = {"Regex": " {2,}"}
_EVERY_SPACE = Crossings(False, True, False)  # cut before every space
_RUNS_BEGIN = Crossings(False, True, True)  # cut before every run of spaces
_NOWHERE = Crossings(True, True, True)


@dataclass(frozen=True)
class Preparation:
    """The changes to text before the model encodes it. charsmap: the replacements of characters;
    prefix: True if a space is added before the text, unless `lead` is True and the text begins with
    a space; squeeze: True if runs of spaces become one space; words: True if text is split before
    every space; plain: True if text stays unchanged and spaces are not written as U+2581."""

    charsmap: Charsmap
    prefix: bool = False
    lead: bool = False
    squeeze: bool = False
    words: bool = False
    plain: bool = False


def read_preparation(parts: Parts) -> Preparation:
    """Return the changes that a tokenizer.json makes to text before its model encodes the text (the
    normalizer and pre-tokenizer). Raises Unsupported if our kernels cannot make these changes."""
    changes = flat_steps(parts["normalizer"])
    cuts = flat_steps(parts["pre_tokenizer"])
    charsmap = no_charsmap()
    if changes and changes[0]["type"] == "Precompiled":
        charsmap = read_charsmap(base64.b64decode(changes[0]["precompiled_charsmap"] or ""))
        changes = changes[1:]
        if any(b"  " in text for text in charsmap.single.values()):
            raise Unsupported("a precompiled normalizer that doubles spaces")
    normalizers = [_step_name(step) for step in changes]
    cut_steps = [_step_name(step) for step in cuts]
    always_split = ["Metaspace always split"]
    if normalizers == ["prepend", "replace"] and cut_steps == [] and not len(charsmap.units):
        return Preparation(charsmap, prefix=True)
    if (
        normalizers == ["replace"]
        and cut_steps in ([], ["Split space"])
        and not len(charsmap.units)
    ):
        return Preparation(charsmap)
    if normalizers == [] and cut_steps == ["Metaspace never"]:
        return Preparation(charsmap)
    if normalizers == [] and cut_steps in (["Metaspace first"], ["Metaspace always"]):
        return Preparation(charsmap, prefix=True, lead=True)
    if (normalizers == [] and cut_steps == ["WhitespaceSplit", *always_split]) or (
        normalizers in (["strip", "runs"], ["strip", "runs one"]) and cut_steps == always_split
    ):
        return Preparation(charsmap, prefix=True, squeeze=True, words=True)
    if normalizers == [] and cut_steps == always_split:
        return Preparation(charsmap, prefix=True, lead=True, words=True)
    if normalizers == [] and cut_steps == ["Split words"] and not len(charsmap.units):
        return Preparation(charsmap, plain=True)
    names = [step["type"] for step in [*changes, *cuts]]
    raise Unsupported(f"the steps {', '.join(names)}" if names else "no pre-tokenizer")


def _step_name(step: Step) -> str:
    kind: str = step["type"]
    if kind == "Prepend" and step["prepend"] == SPACE:
        return "prepend"
    if kind == "Replace" and step["pattern"] == {"String": " "} and step["content"] == SPACE:
        return "replace"
    if kind == "Replace" and step["pattern"] == _RUNS and step["content"] in (SPACE, " "):
        return "runs" if step["content"] == SPACE else "runs one"
    if kind == "Strip" and not step["strip_left"] and step["strip_right"]:
        return "strip"
    if kind == "Metaspace" and step["replacement"] == SPACE:
        split = " split" if step.get("split", True) else ""
        return f"Metaspace {step.get('prepend_scheme', 'always')}{split}"
    if kind == "Split" and not step["invert"]:
        if step["pattern"] == {"String": " "}:  # after `replace` no space is left
            return "Split space"
        if step["pattern"] == {"Regex": WORDS} and step["behavior"] == "Isolated":
            return "Split words"
    return kind


def has_pieces(parts: Parts) -> bool:
    """Return True if the model is a Unigram or a BPE over characters, not over GPT-2's bytes."""
    steps = flat_steps(parts["pre_tokenizer"])
    return parts["model"].get("type") in ("Unigram", "BPE") and not any(
        step["type"] == "ByteLevel" for step in steps
    )


class PieceEncoder:
    """An encoder of Unigram and character BPE. table: uint8[0x110000], in which normalize.find_odd
    looks up if the library `tokenizers` must encode a text; None if our kernels encode all."""

    def __init__(self, parts: Parts) -> None:
        """Read a tokenizer.json that `tokenizers` has loaded. Raises Unsupported."""
        form = read_preparation(parts)
        if any(not token["special"] for token in parts["added_tokens"]):
            raise Unsupported("added tokens that are not special")
        self._normalizer: Normalizer | None = None
        if not form.plain:
            self._normalizer = make_normalizer(
                form.charsmap,
                [],
                prefix=form.prefix,
                squeeze=form.squeeze,
                single=True,
                lead=form.lead,
            )
        self._caches = CachePool()
        model = parts["model"]
        kind = model.get("type")
        if kind == "Unigram":
            self._unigram(model, form)
        elif kind == "BPE":
            if form.words or form.plain:
                raise Unsupported("BPE in words that are cut at spaces")
            self._bpe(model)
        else:
            raise Unsupported(f"the model {kind}")
        # Double and unusual spaces only matter if text is cut at spaces or its characters replaced.
        self.table: np.ndarray | None = None
        if len(form.charsmap.units) or form.words:
            self.table = cluster_table(form.charsmap.single, white=form.squeeze)

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (ids: uint32[], number of ids per row: int64[rows])."""
        if self._normalizer is None:
            return encode_rows(data, offsets, self._encode, self.encode_settled)
        return self._encode(data, offsets)

    def _encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self._normalizer is not None:
            data, offsets = normalize_rows(read_only(data), offsets, self._normalizer)
        return self._caches.run(self._kernel, read_only(data), offsets, *self._tables)

    def encode_settled(self, data: np.ndarray) -> tuple[np.ndarray, int]:
        """Encode the first bytes of a text: those whose ids stay the same whatever text follows
        (see parts.EncodeSettled). Nothing is encoded if text must be normalized first."""
        if self._normalizer is not None:
            return NOTHING_SETTLED
        raw = data.tobytes()
        space = len(raw[: raw.rfind(b" ") + 1].rstrip(b" "))  # where the last spaces begin
        end = max(raw.rfind(b"\n") + 1, space)
        return (self._encode(data, np.array([0, end]))[0], end) if end else NOTHING_SETTLED

    def _unigram(self, model: Model, form: Preparation) -> None:
        vocab = model["vocab"]
        unknown = model.get("unk_id")
        if unknown is None:
            raise Unsupported("a model without an unknown piece")
        pieces = {text: k for k, (text, _) in enumerate(vocab)}
        if not form.plain:
            pieces = {t.replace(SPACE, " "): k for t, k in pieces.items() if " " not in t}
        pieces.pop("", None)
        scores = np.array([score for _, score in vocab], np.float64)
        fallback = _fallback(model, {text: k for k, (text, _) in enumerate(vocab)}, unknown, False)
        if len(fallback.bytes) and scores[unknown] > -1e5:
            raise Unsupported("byte fallback together with an unknown piece that text may contain")
        if form.plain:
            grains = scores * 64
            if " " not in pieces or not len(fallback.bytes) or np.any(grains != np.round(grains)):
                raise Unsupported("a split of words")
            if any("\n" in text and text != "\n" for text in pieces):
                raise Unsupported("a split of words")
        lacking = float(scores.min()) - PENALTY
        if not np.all(np.isfinite(scores)):
            raise Unsupported("a score that is not a number")
        sums = np.empty(0, np.float32)
        unigram = make_unigram(pieces, scores, sums, lacking, rounds=False, exact=True)
        # The library's float64 sums are rounded, too, so cut text only where the library does.
        borders = _EVERY_SPACE if form.words else _RUNS_BEGIN if form.plain else _NOWHERE
        width = 3 if len(fallback.bytes) and " " not in pieces else 1
        self._kernel: Any = encode_unigram
        self._tables: tuple[Any, ...] = (unigram, fallback, borders, width)

    def _bpe(self, model: Model) -> None:
        for name in ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
            if model.get(name):
                raise Unsupported(f"the setting {name}")
        vocab: dict[str, int] = model["vocab"]
        unknown = vocab.get(model.get("unk_token") or "", -1)
        fallback = _fallback(model, vocab, max(unknown, 0), bool(model.get("fuse_unk")))
        if not len(fallback.bytes) and unknown < 0:
            raise Unsupported("unknown characters that are dropped")
        pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
        if any(_BYTE.fullmatch(part) for pair in pairs for part in pair):
            raise Unsupported("merges of bytes")
        if any(" " in part for pair in pairs for part in pair):
            raise Unsupported("merges of spaces that are not escaped")
        tokens = dict.fromkeys(left + right for left, right in pairs)
        rows = [
            (left, right, left + right, rank)
            for rank, (left, right) in enumerate(pairs)
            if all(len(part) == 1 or part in tokens for part in (left, right))
        ]
        if len({(left, right) for left, right, _, _ in rows}) != len(rows):
            raise Unsupported("a merge listed twice")
        spaced = {text: text.replace(SPACE, " ") for text in tokens}
        merges = Merges(
            [*spaced.values()],
            [(a.replace(SPACE, " "), b.replace(SPACE, " "), spaced[c], r) for a, b, c, r in rows],
            {
                text.replace(SPACE, " "): k
                for text, k in vocab.items()
                if (len(text) == 1 or text in tokens) and " " not in text
            },
        )
        width = 1 if " " in merges.ids or not len(fallback.bytes) else 3
        self._kernel = encode_characters
        bpe = make_char_bpe(merges)
        self._tables = (bpe, make_symbols({}), fallback, crossings(merges.tokens), width)


def _fallback(model: Model, vocab: dict[str, int], unknown: int, joined: bool) -> Fallback:
    byte_ids = byte_fallback(vocab) if model.get("byte_fallback") else np.empty(0, np.int64)
    return Fallback(unknown, byte_ids, joined)


_ROWS = 256  # texts per call of the library


class Encoder:
    """Encodes text like `tokenizer`, with special tokens in text encoded as ordinary text. reason:
    why the `tokenizers` library encodes; None if our own kernels encode. Threads may share the
    encoder only if `reason` is None. plan: a byte-level vocabulary's tables, or None. unknown: the
    id for text outside the vocabulary, or None."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.plan: Plan | None = None
        self.reason: str | None = None
        self._added: list[bytes] = []
        self._table: np.ndarray | None = None  # for find_odd: the library encodes odd rows
        self._clusters = False
        parts = parts_of(tokenizer)
        model = parts["model"]
        named = tokenizer.token_to_id(model.get("unk_token") or "")
        self.unknown = model.get("unk_id") if model.get("type") == "Unigram" else named
        self._left_out = np.empty(0, np.int8)  # by code point: 1 yes, 0 no, -1 not known yet
        try:
            if has_pieces(parts):
                pieces = PieceEncoder(parts)
                self._kernels: ByteEncoder | PieceEncoder = pieces
                self._table, self._clusters = pieces.table, True
            else:
                self.plan = read_plan(parts)
                self._kernels = ByteEncoder(self.plan)
                self._added = [token.encode() for token in self.plan.added]
                if self.plan.form:
                    self._table = form_table(self.plan.form)
        except Unsupported as error:
            self.plan, self.reason = None, str(error)

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._encode(data, offsets, None, 0.0)

    def sample(
        self, data: np.ndarray, offsets: np.ndarray, keys: np.ndarray, rate: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encode as ByteEncoder.sample does, with randomly drawn ids; only if `plan` is not None.
        Rows that the `tokenizers` library must encode get their usual ids."""
        return self._encode(data, offsets, keys, rate)

    def _encode(
        self, data: np.ndarray, offsets: np.ndarray, keys: np.ndarray | None, rate: float
    ) -> tuple[np.ndarray, np.ndarray]:
        if self.reason is not None:
            return self._by_library(data, offsets)
        odd = self.odd(data, offsets)
        if not odd.any():
            return self._by_kernels(data, offsets, keys, rate)
        turns = [0, *(np.flatnonzero(np.diff(odd)) + 1).tolist(), len(odd)]
        parts = []
        for a, z in pairwise(turns):
            part = offsets[a : z + 1]
            if odd[a]:
                parts.append(self._by_library(data, part))
            else:
                of_part = None if keys is None else keys[a:z]
                parts.append(self._by_kernels(data, part, of_part, rate))
        return np.concatenate([ids for ids, _ in parts]), np.concatenate([n for _, n in parts])

    def odd(self, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Return bool[rows]: True for texts that the `tokenizers` library must encode, because our
        kernels might give other ids."""
        if self._table is not None:
            return find_odd(data, offsets, self._table, self._clusters)
        odd = np.zeros(len(offsets) - 1, np.bool_)
        for token in self._added:  # a tokenizer with added tokens has no table
            raw = data[offsets[0] : offsets[-1]].tobytes()
            at = raw.find(token)
            while at >= 0:
                row = int(np.searchsorted(offsets, offsets[0] + at, "right")) - 1
                odd[row] |= offsets[0] + at + len(token) <= offsets[row + 1]
                at = raw.find(token, at + 1)
        return odd

    def _by_kernels(
        self, data: np.ndarray, offsets: np.ndarray, keys: np.ndarray | None, rate: float
    ) -> tuple[np.ndarray, np.ndarray]:
        if keys is None:
            return self._kernels.encode(data, offsets)
        assert isinstance(self._kernels, ByteEncoder)  # the only one with a plan
        return self._kernels.sample(data, offsets, keys, rate)

    @property
    def can_settle(self) -> bool:
        """True if `encode_settled` can encode the first bytes of some texts, False if of none."""
        return self.reason is None and not self._added

    def encode_settled(self, data: np.ndarray) -> tuple[np.ndarray, int]:
        """Encode the first bytes of a text: those whose ids stay the same whatever text follows
        (see parts.EncodeSettled). Nothing is encoded if the `tokenizers` library must encode the
        text."""
        if not self.can_settle:
            return NOTHING_SETTLED
        if self._table is None:
            return self._kernels.encode_settled(data)
        # No normal form lets text after an ASCII character change the text before it.
        end = len(data) - 1
        while end > 0 and data[end] >= 0x80:
            end -= 1
        if end <= 0 or find_odd(data, np.array([0, end]), self._table, self._clusters)[0]:
            return NOTHING_SETTLED
        return self._kernels.encode_settled(data[:end])

    def count_unknown(self, data: np.ndarray, ids: np.ndarray) -> int:
        """Return how many ids of the texts in `data` are the unknown token. If the model has none,
        return how many characters it leaves out because no token has them."""
        if self.unknown is not None:
            return int(np.count_nonzero(ids == self.unknown))
        if self.reason is None:  # our kernels encode only models that have all bytes
            return 0
        if not len(self._left_out):
            self._left_out = np.full(sys.maxunicode + 1, -1, np.int8)
        lost, at = count_marked(data, 0, self._left_out)
        while at < len(data):
            character = data[at : at + 4].tobytes().decode("utf-8", "ignore")[0]
            self._left_out[ord(character)] = self._lacks(character)
            more, at = count_marked(data, at, self._left_out)
            lost += more
        return lost

    def _lacks(self, character: str) -> bool:
        """Return whether more than a tenth of a run of the character is left out: the first and
        last may have other tokens, and of its bytes only some may have a token."""
        run = character * 20
        run = normalizer.normalize_str(run) if (normalizer := self.tokenizer.normalizer) else run
        cutter = self.tokenizer.pre_tokenizer
        words = cutter.pre_tokenize_str(run) if cutter else [(run, (0, 0))]
        ids = self._encoded([character * 20])[0].ids
        spelled = sum(len(self.tokenizer.id_to_token(n) or "") for n in ids)
        return 10 * spelled < 9 * sum(len(word) for word, _ in words)

    def _encoded(self, texts: list[str]) -> list[Any]:
        try:
            return list(self.tokenizer.encode_batch_fast(texts, add_special_tokens=False))
        except BaseException as error:  # the library raises bare Exception, and panics
            if not (isinstance(error, Exception) or panicked(error)):
                raise
            if len(texts) > 1:  # find the text
                return [encoding for text in texts for encoding in self._encoded([text])]
            reason = " ".join(str(error).split())[:200]
            if "unk_id" in reason:
                reason = "it has no token for a character there, and no unknown token (unk_id)"
            shown = texts[0] if len(texts[0]) <= 60 else f"{texts[0][:60]}..."
            raise RunFailed(f"this tokenizer cannot encode the text {shown!r}: {reason}") from error

    def _by_library(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids, sizes = [], []
        for first in range(0, len(offsets) - 1, _ROWS):
            bounds = offsets[first : first + _ROWS + 1].tolist()
            texts = [data[a:z].tobytes().decode("utf-8") for a, z in pairwise(bounds)]
            for encoding in self._encoded(texts):
                ids.append(np.array(encoding.ids, np.uint32))
                sizes.append(len(encoding.ids))
        return np.concatenate([np.empty(0, np.uint32), *ids]), np.array(sizes, np.int64)
