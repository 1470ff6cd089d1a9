"""Conversion between file formats: the same ids, or a refusal that names the reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import Tokenizer

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, UsageError
from tokenize_kit.card.figures import Sample, measure
from tokenize_kit.card.page import write_card
from tokenize_kit.change.original import algorithm_name, describe_file, end_token
from tokenize_kit.change.source import FILES, Source, encoder_of, open_source
from tokenize_kit.change.verify import (
    Buffers,
    Comparison,
    Encode,
    builtin_batches,
    compare,
    unigram_scores,
)
from tokenize_kit.encode.byte_bpe import ByteEncoder, plan_of
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.forms import SPACE, ByteBpe, CannotHold, Form
from tokenize_kit.formats.gguf import (
    from_metadata,
    names_in,
    obstacle,
    read_metadata,
    to_metadata,
    write_metadata,
)
from tokenize_kit.formats.json_forms import tokenizer_of
from tokenize_kit.formats.sentencepiece_model import write_form
from tokenize_kit.formats.tiktoken import PATTERN_NAMES, read_ranks, to_ranks
from tokenize_kit.formats.tokenizer_json import write_transformers
from tokenize_kit.pattern.automaton import compile_pattern, pattern_name
from tokenize_kit.pattern.named import PATTERNS
from tokenize_kit.pattern.parse import UnsupportedPattern

_MEASURED = ("tokenizer.json", "sentencepiece")  # that open without a pattern's name


def convert(
    path: Path,
    out: Path,
    to: str,
    *,
    pattern: str | None = None,
    batches: Iterable[Buffers] | None = None,
) -> dict[str, Any]:
    """Writes the tokenizer at `path` in the format `to`, one of reading.FILES; its card.

    out: a folder, or the file itself where it has the format's suffix. pattern: of a .tiktoken
    source. batches: texts on which both have to give the same ids; none: verify.hard_texts.
    Nothing is written where they do not. Raises CannotHold (exit code 1) naming what stands in the
    way, LlmcurateError for files that are no tokenizers.
    """
    if to not in FILES:
        raise UsageError(f"to {to!r}: choose {', '.join(FILES)}")
    source = open_source(path, pattern)
    try:
        data, about = file_of_form(source.form, to)
        if source.kind == to == "tokenizer.json":  # as it is, whatever else it holds
            data = source.path.read_bytes()
        encode = _reopen(data, to, about)
        sample = Sample()
        texts = builtin_batches(source.form) if batches is None else _sampling(batches, sample)
        libraries = {source.kind, to} & {"sentencepiece", "gguf"}
        scores = unigram_scores(source.form) if libraries else None
        checked = compare(source.encode, encode, texts, scores)
    except CannotHold as error:
        more = obstacle(source.form) if to == "gguf" else ""
        if source.kind == "tokenizer.json" and SPACE in str(error):
            more = (
                "; U+2581 is a character there and a space in SentencePiece: verify on texts of"
                " your own (--verify), or convert the tokenizer.model that was trained with it"
            )
        raise CannotHold(f"{source.path}: cannot become {to}: {error}{more}") from None
    if batches is not None and not checked.texts:
        raise UsageError("no document with text to verify on")
    about = describe_file(source.form, target_file(out, to)[1], data) | about
    card = _card(source, to, about, checked)
    if batches is not None and (formats := [k for k in (to, source.kind) if k in _MEASURED]):
        with TemporaryDirectory() as folder:  # the ids of both are the same on these texts
            file = Path(folder) / FILES[formats[0]]
            file.write_bytes(data if formats[0] == to else source.path.read_bytes())
            card["measured"] = measure(file, sample, "a sample of the texts it was verified on")
    write_files(out, to, data, source.form, card)
    return card


def _sampling(batches: Iterable[Buffers], sample: Sample) -> Iterator[Buffers]:
    """The batches, their texts put into the sample."""
    for data, offsets in batches:
        sample.add_rows(data, offsets)
        yield data, offsets


def file_of_form(form: Form, to: str) -> tuple[bytes, dict[str, Any]]:
    """(the file's bytes, what belongs to it and has no place in it)."""
    if to == "tokenizer.json":
        return tokenizer_of(form).to_str(pretty=True).encode(), {}
    if to == "gguf":
        metadata = to_metadata(form)
        return write_metadata(metadata), names_in(metadata)
    if isinstance(form, ByteBpe):
        if to == "sentencepiece":
            raise CannotHold("SentencePiece has no pattern that cuts text, and no tokens of bytes")
        raw = to_ranks(form)
        name = pattern_name(form.parts)
        name = name if name in PATTERN_NAMES else None
        text = PATTERNS[name].parts[0] if name else form.parts[0]
        special = {token.content: token.number for token in form.added}
        return raw, {"pattern": name, "pat_str": text, "special_tokens": special}
    if to == "sentencepiece":
        return write_form(form), {}
    kind = "Unigram" if form.kind == "unigram" else "BPE of characters"
    raise CannotHold(f"tiktoken merges bytes by rank, and this is SentencePiece's {kind}")


def _reopen(data: bytes, to: str, about: dict[str, Any]) -> Encode:
    """The encoding of the written file, read anew."""
    if to == "tiktoken":
        plan = plan_of(read_ranks(data), PATTERN_NAMES[0])
        try:
            table = compile_pattern(about["pat_str"], "rust")
        except UnsupportedPattern as error:
            raise CannotHold(f"how tiktoken reads its pattern is not known: {error}") from None
        return ByteEncoder(replace(plan, tables=(table,))).encode
    with TemporaryDirectory() as folder:
        file = Path(folder) / FILES[to]
        file.write_bytes(data)
        if to == "gguf":
            return encoder_of(from_metadata(read_metadata(file)))
        try:
            return open_vocabulary(file).encode
        except LlmcurateError as error:
            reason = str(error).removeprefix(f"{file}: ")
            raise CannotHold(f"what was written does not open again: {reason}") from None


def _card(source: Source, to: str, about: dict[str, Any], checked: Comparison) -> dict[str, Any]:
    notes = list(source.notes)
    if to == "tiktoken":
        notes.append("a file of ranks has neither pattern nor special tokens: they are in its card")
    if checked.ties:
        notes.append(
            f"in {checked.ties} of {counted(checked.texts, 'text')} two paths are equally good, and"
            " SentencePiece's sums in float32 take another one"
        )
    return {
        "converted_from": source.kind,
        "algorithm": algorithm_name(source.form),
        "source": source.path.name,
        "source_sha256": source.sha256,
        "format": to,
        **about,
        "verified_texts": checked.texts,
        "verified_bytes": checked.bytes,
        "ties": checked.ties,
        "notes": notes,
    }


def write_files(out: Path, to: str, data: bytes, form: Form, card: dict[str, Any]) -> None:
    """The file and its card, and for a tokenizer.json what transformers reads beside it."""
    alone, file = target_file(out, to)
    folder = file.parent
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; name a folder")
    folder.mkdir(parents=True, exist_ok=True)
    if to == "tokenizer.json" and not alone:
        write_transformers(folder, Tokenizer.from_str(data.decode()), end_token(form))
    write_atomic(file, data)
    write_card(out.with_suffix(".card.json") if alone else out / "tokenizer_card.json", card)


def target_file(out: Path, to: str) -> tuple[bool, Path]:
    """(whether `out` is the file's own name, the file)."""
    alone = out.suffix == Path(FILES[to]).suffix and not out.is_dir()
    return alone, out if alone else out / FILES[to]
