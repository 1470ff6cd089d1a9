"""The source of a conversion: a tokenizer of any of the formats, and how it encodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from llmcurate.base.disk.files import file_digest
from llmcurate.base.errors import UsageError
from tokenize_kit.change.verify import Encode
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.spm import by_library
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.files import read_file
from tokenize_kit.formats.forms import ByteBpe, CannotHold, Form, Pieces
from tokenize_kit.formats.gguf import from_metadata, read_metadata
from tokenize_kit.formats.json_forms import byte_bpe_tokenizer, form_from_json
from tokenize_kit.formats.sentencepiece_model import read_form, write_form
from tokenize_kit.formats.tiktoken import from_ranks
from tokenize_kit.formats.tokenizer_json import Parts, load_tokenizer, parts_of

# Formats and the names of their files in a folder.
FILES = {
    "tokenizer.json": "tokenizer.json",
    "sentencepiece": "tokenizer.model",
    "tiktoken": "tokenizer.tiktoken",
    "gguf": "tokenizer.gguf",
}
_SUFFIXES = {Path(name).suffix: kind for kind, name in FILES.items()}


@dataclass(frozen=True)
class Source:
    """A tokenizer that was read. notes: what of its file is no part of the form."""

    path: Path
    kind: str
    form: Form
    encode: Encode
    sha256: str
    notes: tuple[str, ...] = ()


def file_of(path: Path) -> Path:
    """The tokenizer's file: the path, or what a folder holds, tokenizer.json first."""
    if not path.is_dir():
        return path
    return next(
        (f for name in FILES.values() if (f := path / name).is_file()), path / "tokenizer.json"
    )


def kind_of(file: Path) -> str:
    """The format of a file by its name; LlmcurateError for others."""
    kind = _SUFFIXES.get(file.suffix)
    if kind is None:
        raise UsageError(
            f"{file}: name a tokenizer.json or its folder, a .model, .tiktoken or .gguf"
        )
    return kind


def open_source(path: Path, pattern: str | None = None) -> Source:
    """pattern: the name of a published one, for ranks.

    Raises LlmcurateError naming the file: for what is no tokenizer, and for one that has a part
    which only its own format holds (CannotHold).
    """
    file = file_of(path)
    kind = kind_of(file)
    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    if pattern is not None and kind != "tiktoken":
        raise UsageError(f"{file}: a pattern is for .tiktoken files; leave it out")
    notes: list[str] = []
    try:
        if kind == "gguf":
            form = from_metadata(read_metadata(file))
            encode = encoder_of(form)
        else:
            tokenizer = load_tokenizer(file) if kind == "tokenizer.json" else None
            encode = open_vocabulary(file, pattern).encode
            form = _form(file, kind, pattern, tokenizer, notes)
    except CannotHold as error:
        raise CannotHold(f"{file}: {error}") from None
    except (LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
        names = {"gguf": "GGUF file of a tokenizer", "sentencepiece": "SentencePiece model"}
        reason = (str(error) or type(error).__name__).splitlines()[0]
        message = f"{file}: not a {names.get(kind, kind)}: {reason}"
        raise UsageError(message) from None
    return Source(file, kind, form, encode, file_digest(file), tuple(notes))


def _form(
    file: Path, kind: str, pattern: str | None, tokenizer: Tokenizer | None, notes: list[str]
) -> Form:
    if kind == "sentencepiece":
        return read_form(read_file(file))
    if kind == "tiktoken":
        return from_ranks(read_file(file), pattern or "")
    assert tokenizer is not None
    parts: Parts = parts_of(tokenizer)
    post = parts.get("post_processor")
    if post and post["type"] != "ByteLevel":
        notes.append("tokens that its post-processor puts around a text are no part of the result")
    return form_from_json(parts)


def encoder_of(form: Form) -> Encode:
    """Encoding with a form itself, by `tokenizers` or `sentencepiece`."""
    if isinstance(form, ByteBpe):
        tokenizer = byte_bpe_tokenizer(form)
        tokenizer.encode_special_tokens = True
        return Encoder(tokenizer).encode
    return _by_sentencepiece(form)


def _by_sentencepiece(form: Pieces) -> Encode:
    import sentencepiece

    try:
        return by_library(sentencepiece.SentencePieceProcessor(model_proto=write_form(form)))
    except RuntimeError as error:
        raise CannotHold(f"sentencepiece does not take its pieces ({error})") from None
