"""Train a tokenizer and write it with a card that says how it was made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer

from tokenize_kit.bpe import split_pattern, train_bpe
from tokenize_kit.errors import TokenizerError
from tokenize_kit.files import to_json, write_atomic
from tokenize_kit.load import END_OF_TEXT

Model = Literal["bpe", "unigram"]
Digits = Literal["single", "triples"]

_PROBE_BYTES = 1 << 20

# What tokenizers get wrong: control characters, both line ends, runs of spaces, marks without a
# base, joined emoji, the space symbol of SentencePiece, spellings of byte and control tokens.
HARD_TEXTS = (
    "a\x00b\x1f\x7f",
    "one\ntwo\r\nthree\rfour\n\n\n",
    " lead  and   trail    ",
    "\t\tif x:\n\t\t\treturn",
    " " * 5000 + "x",
    "\u0e48\u0301\u093f",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "\u2581a\u2581\u2581 \u2581",
    "<0x41><0x0A><unk><|endoftext|>",
    "\ufeff\ufffd\U0010fffd",
)


@dataclass
class _Counted:
    """Passes texts through and counts them; keeps the first of them to check the round trip."""

    texts: Iterable[str]
    documents: int = 0
    bytes: int = 0
    probe: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[str]:
        for text in self.texts:
            self.documents += 1
            try:
                size = len(text.encode("utf-8"))
            except UnicodeEncodeError as error:
                raise TokenizerError(
                    f"document {self.documents}: not Unicode text ({error.reason}); repair it first"
                ) from error
            if self.bytes + size <= _PROBE_BYTES:
                self.probe.append(text)
            self.bytes += size
            yield text


def _check(vocab: int, model: str, digits: str, special_tokens: Sequence[str]) -> None:
    if model not in ("bpe", "unigram"):
        raise TokenizerError(f"model {model!r}: choose bpe or unigram", exit_code=2)
    if digits not in ("single", "triples"):
        raise TokenizerError(f"digits {digits!r}: choose single or triples", exit_code=2)
    if model == "unigram" and digits != "single":
        raise TokenizerError("unigram splits digits one by one: use digits single", exit_code=2)
    if not special_tokens or special_tokens[0] not in END_OF_TEXT:
        raise TokenizerError(
            f"special tokens: begin with the end of text, one of {', '.join(END_OF_TEXT)}",
            exit_code=2,
        )
    if len(set(special_tokens)) != len(special_tokens):
        raise TokenizerError("special tokens: give each once", exit_code=2)
    for token in special_tokens:
        if len(token) < 2 or not token.isascii() or not token.isprintable() or " " in token:
            raise TokenizerError(
                f"special token {token!r}: use two or more printable ASCII characters, no space",
                exit_code=2,
            )
    least = 256 + len(special_tokens) + 1
    if vocab < least:
        raise TokenizerError(f"vocab {vocab}: ask for {least} or more", exit_code=2)


def round_trip_failures(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """The texts that do not come back exactly from encode and decode."""
    before = tokenizer.encode_special_tokens
    tokenizer.encode_special_tokens = True
    try:
        return [
            text
            for text in texts
            if tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) != text
        ]
    finally:
        tokenizer.encode_special_tokens = before


def train_tokenizer(
    texts: Iterable[str],
    out: Path,
    *,
    model: Model = "bpe",
    vocab: int = 32_000,
    digits: Digits = "single",
    special_tokens: Sequence[str] = ("<|endoftext|>",),
) -> dict[str, Any]:
    """Train on ``texts`` (one string a document) and write the tokenizer into the folder ``out``.

    Writes ``tokenizer.json`` and ``tokenizer_card.json``, for unigram also ``tokenizer.model``,
    each whole or not at all, the card last. The first special token ends documents. Nothing is
    normalised. The same texts in the same order give the same bytes, on any number of threads.

    Returns the card. Raises ``TokenizerError`` for wrong settings and for an empty corpus; fewer
    tokens than asked is a warning in the card.
    """
    _check(vocab, model, digits, special_tokens)
    out.mkdir(parents=True, exist_ok=True)
    counted = _Counted(texts)
    warnings: list[str] = []
    details: dict[str, Any]
    spm: bytes | None = None
    if model == "bpe":
        tokenizer = train_bpe(
            iter(counted), vocab=vocab, digits=digits, special_tokens=special_tokens
        )
        merges = len(json.loads(tokenizer.to_str())["model"]["merges"])
        details = {"merges": merges, "pattern": split_pattern(digits), "byte_fallback": False}
    else:
        from tokenize_kit.unigram import COVERAGE  # needs sentencepiece

        tokenizer, spm, details = _unigram(counted, out, vocab, special_tokens)
        if details["character_coverage"] < COVERAGE:
            warnings.append(
                f"vocab {vocab} is small for this corpus: characters beyond the commonest "
                f"{details['character_coverage']:.4%} of the text are spelled in bytes"
            )
    if not counted.bytes:
        raise TokenizerError("the corpus is empty: give at least one document with text")
    actual = tokenizer.get_vocab_size(with_added_tokens=True)
    if actual < vocab:
        warnings.append(f"{actual} tokens instead of {vocab}: the corpus is too small for more")
    probe = [*HARD_TEXTS, *counted.probe]
    for text in round_trip_failures(tokenizer, probe):
        warnings.append(f"does not round-trip: {text[:40]!r}")

    data = tokenizer.to_str(pretty=True).encode("utf-8")
    card: dict[str, Any] = {
        "algorithm": "byte-level BPE" if model == "bpe" else "Unigram",
        "model": model,
        "trainer": "llmcurate" if model == "bpe" else f"sentencepiece {version('sentencepiece')}",
        "vocab_asked": vocab,
        "vocab": actual,
        **details,
        "digits": digits,
        "normalisation": "none",
        "special_tokens": {token: tokenizer.token_to_id(token) for token in special_tokens},
        "end_of_text": special_tokens[0],
        "documents": counted.documents,
        "bytes": counted.bytes,
        "round_trip_checked": len(probe),
        "tokenizer_sha256": hashlib.sha256(data).hexdigest(),
        "warnings": warnings,
    }
    if spm is not None:
        write_atomic(out / "tokenizer.model", spm)
    write_atomic(out / "tokenizer.json", data)
    write_atomic(out / "tokenizer_card.json", to_json(card))
    return card


def _unigram(
    counted: _Counted, out: Path, vocab: int, special_tokens: Sequence[str]
) -> tuple[Tokenizer, bytes, dict[str, Any]]:
    from tokenize_kit.unigram import spill, train_unigram  # needs sentencepiece

    spilled = out / ".tokenizer-corpus.partial"
    try:
        corpus = spill(iter(counted), spilled)
        if not counted.bytes:
            raise TokenizerError("the corpus is empty: give at least one document with text")
        spm, tokenizer, coverage = train_unigram(corpus, vocab=vocab, special_tokens=special_tokens)
    finally:
        spilled.unlink(missing_ok=True)
        spilled.with_name(spilled.name + ".cut").unlink(missing_ok=True)
    details = {
        "merges": None,
        "pattern": None,
        "byte_fallback": True,
        "character_coverage": coverage,
        "sentences": corpus.lines,
    }
    return tokenizer, spm, details
