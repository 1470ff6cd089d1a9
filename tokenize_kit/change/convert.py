"""Convert a tokenizer to another file format. The result gives the same ids, or the conversion
stops with an error that names the reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import Tokenizer

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, UsageError
from tokenize_kit.card import Card, Measured, Sample, measure
from tokenize_kit.change.original import (
    FILES,
    FileFacts,
    Source,
    algorithm_name,
    describe_file,
    encoder_of,
    end_token,
    open_source,
)
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
    known_difference,
    names_in,
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

_MEASURED = ("tokenizer.json", "sentencepiece")  # can be opened without a pattern's name


@dataclass(frozen=True, kw_only=True)
class ConvertedCard(Card):
    """The card of a converted tokenizer. terms: the names that a GGUF file gives to its model and
    its pattern; each is a field of the JSON."""

    converted_from: str
    algorithm: str
    source: str
    source_sha256: str
    format: str
    file: str
    vocab: int
    special_tokens: dict[str, int]
    end_of_text: str | None
    tokenizer_sha256: str
    pattern: str | None
    pat_str: str | None = None
    terms: dict[str, str]
    verified_texts: int
    verified_bytes: int
    ties: int
    notes: list[str]
    measured: Measured | None = None

    def origin(self) -> str:
        return f"Converted to {self.format} from {self.converted_from}, with the same ids."

    def json(self) -> dict[str, Any]:
        """Return the card's fields as JSON values. The names in a GGUF file become fields.
        `pattern` is included only for a file of tiktoken's ranks, and there even if it is null."""
        return {
            name: value
            for field, whole in super().json().items()
            if field != "pattern" or self.pat_str is not None
            for name, value in (whole if field == "terms" else {field: whole}).items()
        }


def convert(
    path: Path,
    out: Path,
    to: str,
    *,
    pattern: str | None = None,
    batches: Iterable[Buffers] | None = None,
) -> ConvertedCard:
    """Convert the tokenizer at `path` to the format `to`, a key of FILES, write it with its
    card, and return the card. out: a folder, or the file itself if it has the format's suffix.
    pattern: the pattern's name for a .tiktoken source. batches: texts for which both tokenizers
    must give the same ids; by default verify.builtin_batches. If ids differ, nothing is written.
    Raises CannotHold (exit code 1) naming the unsupported feature, and LlmcurateError for
    invalid files."""
    if to not in FILES:
        raise UsageError(f"to {to!r}: choose {', '.join(FILES)}")
    source = open_source(path, pattern)
    try:
        data, terms = file_of_form(source.form, to)
        if source.kind == to == "tokenizer.json":  # unchanged, with fields that the form lacks
            data = source.path.read_bytes()
        encode = _reopen(data, to, terms)
        sample = Sample()
        texts = builtin_batches(source.form) if batches is None else _sampling(batches, sample)
        libraries = {source.kind, to} & {"sentencepiece", "gguf"}
        scores = unigram_scores(source.form) if libraries else None
        checked = compare(source.encode, encode, texts, scores)
    except CannotHold as error:
        more = known_difference(source.form) if to == "gguf" else ""
        if source.kind == "tokenizer.json" and SPACE in str(error):
            more = (
                "; U+2581 is a character there and a space in SentencePiece: verify on your own"
                " texts (--on), or convert the tokenizer.model that was trained with it"
            )
        raise CannotHold(f"{source.path}: cannot become {to}: {error}{more}") from None
    if batches is not None and not checked.texts:
        raise UsageError("no document with text to verify on")
    facts = describe_file(source.form, target_file(out, to)[1], data)
    card = _card(source, to, facts, terms, checked)
    if batches is not None and (formats := [k for k in (to, source.kind) if k in _MEASURED]):
        with TemporaryDirectory() as folder:  # on these texts, both have the same ids
            file = Path(folder) / FILES[formats[0]]
            file.write_bytes(data if formats[0] == to else source.path.read_bytes())
            measured, _ = measure(file, sample, "a sample of the texts used to verify it")
            card = replace(card, measured=measured)
    write_files(out, to, data, source.form, card)
    return card


def _sampling(batches: Iterable[Buffers], sample: Sample) -> Iterator[Buffers]:
    for data, offsets in batches:
        sample.add_rows(data, offsets)
        yield data, offsets


@dataclass(frozen=True)
class Terms:
    """Facts that users of the file need but that it does not contain. For tiktoken's ranks: the
    name and the text of the pattern, and the special tokens. For GGUF: the names of model and
    pattern."""

    pattern: str | None = None
    pat_str: str | None = None
    special_tokens: dict[str, int] | None = None
    gguf: dict[str, str] = field(default_factory=dict)


def file_of_form(form: Form, to: str) -> tuple[bytes, Terms]:
    """Convert a tokenizer's form to a file format, `to`; return (the bytes, terms for its card)."""
    if to == "tokenizer.json":
        return tokenizer_of(form).to_str(pretty=True).encode(), Terms()
    if to == "gguf":
        metadata = to_metadata(form)
        return write_metadata(metadata), Terms(gguf=names_in(metadata))
    if isinstance(form, ByteBpe):
        if to == "sentencepiece":
            raise CannotHold(
                "SentencePiece has no pattern to split text by, and no tokens of bytes"
            )
        raw = to_ranks(form)
        name = pattern_name(form.parts)
        name = name if name in PATTERN_NAMES else None
        text = PATTERNS[name].parts[0] if name else form.parts[0]
        special = {token.content: token.number for token in form.added}
        return raw, Terms(name, text, special)
    if to == "sentencepiece":
        return write_form(form), Terms()
    kind = "Unigram" if form.kind == "unigram" else "BPE of characters"
    raise CannotHold(f"tiktoken merges bytes by rank, and this is SentencePiece's {kind}")


def _reopen(data: bytes, to: str, terms: Terms) -> Encode:
    if to == "tiktoken":
        plan = plan_of(read_ranks(data), PATTERN_NAMES[0])
        try:
            table = compile_pattern(terms.pat_str or "", "rust")
        except UnsupportedPattern as error:
            raise CannotHold(
                f"its pattern is not supported in tiktoken's syntax: {error}"
            ) from None
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
            raise CannotHold(f"the written file cannot be opened: {reason}") from None


def _card(
    source: Source, to: str, facts: FileFacts, terms: Terms, checked: Comparison
) -> ConvertedCard:
    notes = list(source.notes)
    if to == "tiktoken":
        notes.append("a .tiktoken file has neither pattern nor special tokens: the card lists them")
    if checked.ties:
        notes.append(
            f"in {checked.ties} of {counted(checked.texts, 'text')} two paths are equally good, and"
            " SentencePiece's float32 sums choose the other one"
        )
    if terms.special_tokens is not None:
        facts = facts._replace(special_tokens=terms.special_tokens)
    return ConvertedCard(
        converted_from=source.kind,
        algorithm=algorithm_name(source.form),
        source=source.path.name,
        source_sha256=source.sha256,
        format=to,
        **facts._asdict(),
        pattern=terms.pattern,
        pat_str=terms.pat_str,
        terms=terms.gguf,
        verified_texts=checked.texts,
        verified_bytes=checked.bytes,
        ties=checked.ties,
        notes=notes,
    )


def write_files(out: Path, to: str, data: bytes, form: Form, card: ConvertedCard) -> None:
    """Write the file, its card and, for a tokenizer.json in a folder, the other files that
    transformers reads."""
    is_file, file = target_file(out, to)
    folder = file.parent
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; name a folder")
    folder.mkdir(parents=True, exist_ok=True)
    if to == "tokenizer.json" and not is_file:
        write_transformers(folder, Tokenizer.from_str(data.decode()), end_token(form))
    write_atomic(file, data)
    card.write(out.with_suffix(".card.json") if is_file else out / "tokenizer_card.json")


def target_file(out: Path, to: str) -> tuple[bool, Path]:
    """Return (True if `out` names a file and not a folder, the path of the file to write)."""
    is_file = out.suffix == Path(FILES[to]).suffix and not out.is_dir()
    return is_file, out if is_file else out / FILES[to]
