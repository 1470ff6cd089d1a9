"""Convert a tokenizer to another file format. The result gives the same ids, or the conversion
stops with an error that names the reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, UsageError
from llmcurate.base.roles import SPELLING, with_tokens
from llmcurate.base.tokenizer_file import read_file
from tokenize_kit.card import Card, Measured, Sample, measure
from tokenize_kit.change.original import (
    FILES,
    FileFacts,
    Source,
    algorithm_name,
    describe_file,
    open_source,
    write_beside,
)
from tokenize_kit.change.verify import (
    Buffers,
    Comparison,
    Reading,
    added_texts,
    builtin_batches,
    by_tiktoken,
    by_tokenizers,
    losses,
    tried,
    unigram_scores,
)
from tokenize_kit.encode.byte_bpe import ByteEncoder, plan_of
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.forms import SPACE, Added, ByteBpe, CannotHold, Form, Pieces
from tokenize_kit.formats.gguf import (
    AROUND,
    known_difference,
    names_in,
    role_notes,
    to_metadata,
    write_metadata,
)
from tokenize_kit.formats.json_forms import added_of, tokenizer_of
from tokenize_kit.formats.sentencepiece_model import write_form
from tokenize_kit.formats.tiktoken import PATTERN_NAMES, read_ranks, to_ranks
from tokenize_kit.formats.tokenizer_json import parts_of
from tokenize_kit.pattern.automaton import pattern_name
from tokenize_kit.pattern.named import PATTERNS
from tokenize_kit.pattern.parse import UnsupportedPattern

_SHOWN = 4  # tokens named in a line
_MEASURED = ("tokenizer.json", "sentencepiece")  # can be opened without a pattern's name


@dataclass(frozen=True, kw_only=True)
class ConvertedCard(Card):
    """The card of a converted tokenizer. terms: the names of the model and its pattern in a GGUF
    file; each becomes a field of the JSON. lost: what the new format cannot hold, in words.
    compared: numbers from the comparison of the old with the new tokenizer:

    - added_tokens: added tokens for which test texts are made
    - added_texts: these texts, compared without matching special tokens
    - parsed_texts: these texts, compared with matching special tokens
    - decoded_texts: texts whose ids were decoded
    - explained_texts: texts whose ids differ because of lost features"""

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
    terms: dict[str, str] = field(default_factory=dict)
    verified_texts: int
    verified_bytes: int
    ties: int
    compared: dict[str, int]
    lost: list[str]
    notes: list[str]
    measured: Measured | None = None

    def origin(self) -> str:
        but = f", except for the {', the '.join(self.lost)}" if self.lost else ""
        return f"Converted to {self.format} from {self.converted_from}, with the same ids{but}."

    def json(self) -> dict[str, Any]:
        """Return the card's fields as JSON values; each entry of `terms` becomes a field. `pattern`
        is included only for a file of tiktoken's ranks, and may be null there."""
        return {
            name: value
            for key, whole in super().json().items()
            if key != "pattern" or self.pat_str is not None
            for name, value in (whole if key == "terms" else {key: whole}).items()
        }


def convert(
    path: Path,
    out: Path,
    to: str,
    *,
    pattern: str | None = None,
    batches: Iterable[Buffers] | None = None,
    begin: str | None = None,
    end: str | None = None,
    allow_loss: bool = False,
) -> ConvertedCard:
    """Convert a tokenizer to another format, write it with its card, and return the card. out: a
    folder, or the file itself if it has the format's suffix. to: the format, a key of FILES.
    pattern: the name of the pattern that splits text, for a .tiktoken source. batches: texts for
    which both tokenizers must give the same ids, by default verify.builtin_batches; texts with the
    added tokens are always compared too. begin, end: the tokens that begin and end a text, if not
    None; they replace the file's own. allow_loss: write the file even if the format cannot hold
    some features of added tokens or of the decoder; the card lists these features.

    If ids differ, nothing is written. Raises CannotHold (exit code 1), which names the feature, and
    LlmcurateError for invalid files."""
    if to not in FILES:
        raise UsageError(f"to {to!r}: choose {', '.join(FILES)}")
    source = open_source(path, pattern)
    form = source.form
    roles = with_tokens(form.roles, form.numbers, begin=begin, end=end)
    source = replace(source, form=replace(form, roles=roles))
    try:
        data, known = file_of_form(source.form, to)
        if source.kind == to == "tokenizer.json":  # unchanged, with fields that the form lacks
            data = read_file(source.path)
        after = _reopen(source.form, data, to)
        sample = Sample()
        texts = builtin_batches(source.form) if batches is None else _sampling(batches, sample)
        verified = _verify(source, after, texts, to, allow_loss)
    except CannotHold as error:
        more = known_difference(source.form) if to == "gguf" else ""
        if (
            source.kind == "tokenizer.json"
            and isinstance(source.form, Pieces)
            and source.form.charsmap
        ):
            more = (
                "; the Precompiled normalizer of a tokenizer.json drops marks behind some letters,"
                " and SentencePiece keeps them: verify on your own texts (--on)"
            )
        raise CannotHold(f"{source.path}: cannot become {to}: {error}{more}") from None
    if batches is not None and not verified["verified_texts"]:
        raise UsageError("no document with text to verify on")
    facts = describe_file(source.form, target_file(out, to)[1], data)
    if to == "tiktoken":  # all added tokens are special there
        facts = facts._replace(special_tokens={t.content: t.number for t in after.added})
    card = _card(source, to, facts, known, verified)
    if batches is not None and (formats := [k for k in (to, source.kind) if k in _MEASURED]):
        with TemporaryDirectory() as scratch:  # on these texts, both have the same ids
            copy = Path(scratch) / FILES[formats[0]]
            copy.write_bytes(data if formats[0] == to else read_file(source.path))
            measured, _ = measure(copy, sample, "a sample of the texts used to verify it")
            card = replace(card, measured=measured)
    is_file, file = target_file(out, to)
    folder = file.parent
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; name a folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(file, data)
    if not is_file:
        write_beside(source.path, file, source.form.roles)
    card.write(out.with_suffix(".card.json") if is_file else out / "tokenizer_card.json")
    return card


def _sampling(batches: Iterable[Buffers], sample: Sample) -> Iterator[Buffers]:
    for data, offsets in batches:
        sample.add_rows(data, offsets)
        yield data, offsets


def file_of_form(form: Form, to: str) -> tuple[bytes, dict[str, Any]]:
    """Return (bytes of the file, extra fields of the card) for a tokenizer in the format `to`. The
    fields hold facts that the file itself lacks: for tiktoken's ranks the name and text of the
    pattern; for GGUF the names of model and pattern, and notes on the roles of special tokens."""
    if to == "tokenizer.json":
        return tokenizer_of(form).to_str(pretty=True).encode(), {}
    if to == "gguf":
        metadata = to_metadata(form)
        known = {"terms": names_in(metadata), "notes": role_notes(form, metadata)}
        return write_metadata(metadata), known
    if isinstance(form, ByteBpe):
        if to == "sentencepiece":
            raise CannotHold(
                "SentencePiece has no pattern to split text by, and no tokens of bytes"
            )
        raw, name = to_ranks(form), pattern_name(form.parts)
        name = name if name in PATTERN_NAMES else None
        return raw, {"pattern": name, "pat_str": PATTERNS[name].parts[0] if name else form.parts[0]}
    if to == "sentencepiece":
        return write_form(form), {}
    kind = "Unigram" if form.kind == "unigram" else "BPE of characters"
    raise CannotHold(f"tiktoken merges bytes by rank, and this is SentencePiece's {kind}")


def _verify(
    source: Source, after: Reading, batches: Iterable[Buffers], to: str, allow_loss: bool
) -> dict[str, Any]:
    """Compare a tokenizer with its conversion, and return fields of the card. Raises CannotHold if
    ids differ, and if features are lost unless allow_loss is True."""
    before, form = source.reading, source.form
    features = losses(before, after)
    lost, notes = list[str](), list[str]()
    for feature, tokens in features.items():
        # llama.cpp decides by a token's name whether it is special.
        listed = notes if to == "gguf" and feature.startswith("special=") else lost
        names = ", ".join(repr(token.content) for token in tokens[:_SHOWN])
        more = f" and {len(tokens) - _SHOWN:,} more" if len(tokens) > _SHOWN else ""
        listed.append(f"{feature} of {counted(len(tokens), 'added token')}: {names}{more}")
    _check_lost(lost, allow_loss)
    libraries = {source.kind, to} & {"sentencepiece", "gguf"}
    excused = [token for tokens in features.values() for token in tokens]
    if libraries and "tokenizer.json" in (source.kind, to):
        excused.append(Added(SPACE, -1, special=False))
    checked = Comparison(
        excused,
        unigram_scores(form) if libraries else None,
        form.unknown if isinstance(form, Pieces) else -1,
    )
    texts = checked.run(before, after, batches) - checked.explained
    verified = {"verified_texts": texts, "verified_bytes": checked.bytes, "ties": checked.ties}
    tokens, can_parse = tried(before.added), bool(before.parse and after.parse)
    compared = {
        "added_tokens": len(tokens),
        "added_texts": checked.run(before, after, added_texts(tokens)),
        "parsed_texts": checked.run(before, after, added_texts(tokens if can_parse else []), True),
        "decoded_texts": checked.decoded,
        "explained_texts": checked.explained,
    }
    if checked.undecoded:
        lost.append(checked.undecoded)
        _check_lost(lost, allow_loss)
    notes = [f"llama.cpp tells special tokens by their names, not by {note}" for note in notes]
    if checked.explained and excused[-1].number < 0:
        notes.append(f"texts with {SPACE!r} may have other ids: SentencePiece takes it for a space")
    return {**verified, "compared": compared, "lost": lost, "notes": notes}


def _check_lost(lost: list[str], allow_loss: bool) -> None:
    if lost and not allow_loss:
        raise CannotHold(f"it cannot hold {'; '.join(lost)}; add --allow-loss to convert without")


def _reopen(form: Form, data: bytes, to: str) -> Reading:
    if to == "tiktoken":
        assert isinstance(form, ByteBpe)
        try:
            encode = ByteEncoder(plan_of(read_ranks(data), form.parts[0])).encode
        except UnsupportedPattern as error:
            raise CannotHold(
                f"its pattern is not supported in tiktoken's syntax: {error}"
            ) from None
        special = tuple(Added(token.content, token.number, True) for token in form.added)
        return by_tiktoken(encode, replace(form, added=special))
    with TemporaryDirectory() as folder:
        file = Path(folder) / FILES[to]
        file.write_bytes(data)
        try:
            if to == "tokenizer.json":  # perhaps with steps that no form has
                encoder = open_vocabulary(file).encoder
                assert isinstance(encoder, Encoder)
                return by_tokenizers(encoder, added_of(parts_of(encoder.tokenizer)))
            return open_source(file).reading
        except LlmcurateError as error:
            reason = str(error).removeprefix(f"{file}: ")
            raise CannotHold(f"the written file cannot be opened: {reason}") from None


def _card(
    source: Source, to: str, facts: FileFacts, known: dict[str, Any], verified: dict[str, Any]
) -> ConvertedCard:
    notes = [*source.notes, *known.pop("notes", ()), *verified.pop("notes")]
    roles = source.form.roles
    if roles.origin.get("ends") == SPELLING:
        notes.append(f"{facts.end_of_text!r} ends a text: known by its spelling (see --eos-token)")
    if to in ("sentencepiece", "tiktoken") and (roles.before or roles.behind):
        notes.append(AROUND)
    if to == "tiktoken":
        notes.append("a .tiktoken file has neither pattern nor special tokens: the card lists them")
    if verified["ties"]:
        notes.append(
            f"in {verified['ties']} of {counted(verified['verified_texts'], 'text')} two paths are"
            " equally good, and SentencePiece's float32 sums choose the other one"
        )
    return ConvertedCard(
        converted_from=source.kind,
        algorithm=algorithm_name(source.form),
        source=source.path.name,
        source_sha256=source.sha256,
        format=to,
        **facts._asdict(),
        **({"pattern": None} | known),
        **verified,
        notes=notes,
    )


def target_file(out: Path, to: str) -> tuple[bool, Path]:
    """Return (True if `out` names a file and not a folder, the path of the file to write)."""
    is_file = out.suffix == Path(FILES[to]).suffix and not out.is_dir()
    return is_file, out if is_file else out / FILES[to]
