"""Open a tokenizer that is to be changed or converted: read its content as a form (a description
that all file formats share), and make the functions that encode and normalize text as it does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from llmcurate.base.disk.files import file_digest, write_atomic
from llmcurate.base.disk.sealed_json import encode_json, read_json
from llmcurate.base.errors import UsageError
from llmcurate.base.roles import FILE, Roles, copy_beside, read_roles
from llmcurate.base.tokenizer_file import read_file
from tokenize_kit.change.bpe import (
    CharBpe,
    Words,
    char_bpe_from_json,
    char_bpe_from_pieces,
    words_by_sentencepiece,
    words_by_tokenizers,
)
from tokenize_kit.change.verify import (
    Encode,
    Reading,
    by_llama_cpp,
    by_tiktoken,
    by_tokenizers,
    pack_texts,
    processor_of,
)
from tokenize_kit.encode.byte_bpe import Plan
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.vocabulary import Vocabulary, open_vocabulary
from tokenize_kit.formats.forms import (
    BYTE,
    FILES,
    NORMAL,
    SPACE,
    Added,
    ByteBpe,
    CannotHold,
    Form,
    Pieces,
    file_of,
)
from tokenize_kit.formats.gguf import from_metadata, read_metadata
from tokenize_kit.formats.json_forms import (
    added_of,
    byte_bpe_from_json,
    byte_bpe_tokenizer,
    form_from_json,
    is_byte_bpe,
    normalizers_of,
    pieces_from_json,
)
from tokenize_kit.formats.sentencepiece_model import read_form
from tokenize_kit.formats.tekken import is_tekken, load_json
from tokenize_kit.formats.tiktoken import is_ranks, listed_special
from tokenize_kit.formats.tokenizer_json import Parts, parts_of, write_transformers

_UNICODE = ("NFC", "NFD", "NFKC", "NFKD")


@dataclass(frozen=True)
class Original:
    """A tokenizer to change. form: its content, in terms that all file formats share; encode: its
    encoder; parts: the contents of a tokenizer.json, or None for a .model; raw: the bytes of a
    .model; prepared: a function that normalizes text as the model does but does not replace spaces
    by U+2581, or None if no text is normalized or the normalization is left to `encode`."""

    path: Path
    form: Form | CharBpe
    encode: Encode
    sha256: str
    parts: Parts | None
    raw: bytes
    prepared: Callable[[str], str] | None

    @property
    def size(self) -> int:
        """The highest id plus one, added tokens included."""
        return self.form.size

    @property
    def file_name(self) -> str:
        """The name of the tokenizer's file in a folder."""
        return "tokenizer.model" if self.parts is None else "tokenizer.json"

    def words(self) -> Words:
        """Return the function that splits text into words and encodes them (BPE of characters)."""
        assert isinstance(self.form, CharBpe)
        if self.parts is None:
            return words_by_sentencepiece(self.form, self.raw)
        return words_by_tokenizers(self.form, load_json(self.path))

    def plan(self) -> Plan:
        """Return the tables that encode normalized text by byte-level BPE. Raises CannotHold if our
        kernels cannot encode with this tokenizer."""
        assert isinstance(self.form, ByteBpe)
        encoder = Encoder(byte_bpe_tokenizer(self.form))
        if encoder.plan is None:
            raise CannotHold(
                f"{self.path}: our kernels cannot encode it: {encoder.reason}; change that first"
            )
        return encoder.plan


def open_tokenizer(path: Path) -> Original:
    """Open a tokenizer.json (byte or character BPE, Unigram) or a .model (BPE, Unigram). Raises
    LlmcurateError naming the file for any other file."""
    file = file_of(path)
    kind = kind_of(file)
    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    if kind not in ("tokenizer.json", "sentencepiece"):
        raise UsageError(
            f"{file}: convert it first (llmcurate tokenizer convert --to tokenizer.json)"
        )
    vocabulary = open_vocabulary(file)
    parts: Parts | None = None
    prepared: Callable[[str], str] | None
    try:
        if not isinstance(vocabulary.encoder, Encoder):
            raw = read_file(file)
            pieces = read_form(raw)
            form: Form | CharBpe = (
                pieces if pieces.kind == "unigram" else char_bpe_from_pieces(pieces)
            )
            library = vocabulary.encoder.library
            prepared = (
                (lambda text: library.Normalize(text).replace(SPACE, " "))
                if form is pieces
                else None
            )
        else:
            raw = b""
            tokenizer = vocabulary.encoder.tokenizer
            parts = parts_of(tokenizer)
            form, prepared = _read_json(tokenizer, parts)
    except CannotHold as error:
        raise CannotHold(f"{file}: cannot be changed: {error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file}: not a tokenizer ({error})") from None
    form = replace(form, roles=vocabulary.roles)
    return Original(file, form, vocabulary.encode, file_digest(file), parts, raw, prepared)


def _read_json(
    tokenizer: Tokenizer, parts: Parts
) -> tuple[Form | CharBpe, Callable[[str], str] | None]:
    steps = tokenizer.normalizer
    if is_byte_bpe(parts):
        kinds = normalizers_of(parts)
        if kinds and all(kind in _UNICODE for kind in kinds):
            return byte_bpe_from_json(parts | {"normalizer": None}), steps.normalize_str
        return byte_bpe_from_json(parts), None
    if parts["model"].get("type") == "BPE":
        return char_bpe_from_json(parts), None  # the library prepares and splits text
    form = pieces_from_json(parts, whole=False)
    if steps is None:
        return form, None
    return form, lambda text: steps.normalize_str(text).replace(SPACE, " ")


def write_changed(
    original: Original, out: Path, data: bytes, new: np.ndarray | None = None
) -> Path:
    """Write a changed tokenizer's file, and the files that belong to it, into a folder. Return the
    file's path. new: int64[old ids], the new id of each token, negative for removed tokens; None if
    ids are unchanged."""
    out.mkdir(parents=True, exist_ok=True)
    file, roles = out / original.file_name, original.form.roles
    write_atomic(file, data)
    if new is not None:
        roles = roles.renumbered(lambda number: int(new[number]) if new[number] >= 0 else None)
    write_beside(original.path, file, roles, new)
    return file


def write_beside(tokenizer: Path, file: Path, roles: Roles, new: np.ndarray | None = None) -> None:
    """Copy the files beside the old tokenizer's file `tokenizer` to the folder of the new
    tokenizer's file `file`. If `file` is a tokenizer.json and no tokenizer_config.json is copied,
    write the files that transformers reads. roles: the new tokenizer's special tokens by role; new:
    int64[old ids], the new id of each token, to be written into the copies, or None."""
    folder = file.parent
    names = copy_beside(tokenizer, folder, roles)
    for name in names:
        if name == FILE:
            roles.write(folder)
        elif name.endswith(".json") and new is not None:
            write_atomic(folder / name, encode_json(_renumbered(tokenizer.parent / name, new)))
    if file.name == FILES["tokenizer.json"] and "tokenizer_config.json" not in names:
        write_transformers(folder, Tokenizer.from_file(str(file)), roles)


def _renumbered(file: Path, new: np.ndarray) -> dict[str, Any]:
    """Return the settings in `file`, a JSON file beside a tokenizer, with the ids of tokens
    replaced by the ids in `new`. Removed tokens are left out of lists, and None elsewhere."""
    settings = read_json(file)

    def of(value: Any) -> Any:
        if isinstance(value, list):
            return [number for number in map(of, value) if number is not None]
        known = isinstance(value, int) and 0 <= value < len(new)
        return (int(new[value]) if new[value] >= 0 else None) if known else value

    for name, value in settings.items():
        if name.endswith(("_token_id", "suppress_tokens")):
            settings[name] = of(value)
        if name == "added_tokens_decoder" and isinstance(value, dict):
            kept = {of(int(key)): token for key, token in value.items() if key.isdecimal()}
            settings[name] = {str(n): token for n, token in kept.items() if n is not None}
    return settings


def file_with_added(parts: Parts, added: tuple[Added, ...]) -> bytes:
    """Return a changed tokenizer.json of byte-level BPE, written by `tokenizers`. The file's added
    tokens, `added`, are also put into the vocabulary, because the library would otherwise renumber
    them. Raises CannotHold if ordinary text could then give a special token."""
    vocab = parts["model"]["vocab"]
    for token in added:
        if vocab.setdefault(token.content, token.number) != token.number:
            raise CannotHold(f"the added token {token.content!r} has the text of an ordinary token")
    tokenizer = Tokenizer.from_str(json.dumps(parts))
    unknown = parts["model"].get("unk_token")  # ordinary text may give it
    special = [token for token in added if token.special and token.content != unknown]
    plain = Tokenizer.from_str(json.dumps(parts))
    plain.encode_special_tokens = True
    encode = Encoder(plain).encode
    ids, _ = encode(*pack_texts([token.content for token in special]))
    if np.isin(ids, [token.number for token in special]).any():
        raise CannotHold("its text would give special tokens (ignore_merges)")
    if any(tokenizer.token_to_id(token.content) != token.number for token in added):
        raise CannotHold("its added tokens would have other ids")
    return tokenizer.to_str(pretty=True).encode()


def end_token(form: Form | CharBpe) -> str | None:
    """Return the spelling of the token that ends a document, or None."""
    end = form.roles.end
    return next((text for text, number in form.special.items() if number == end), None)


def algorithm_name(form: Form | CharBpe) -> str:
    if isinstance(form, ByteBpe):
        return "byte-level BPE"
    unigram = isinstance(form, Pieces) and form.kind == "unigram"
    return "Unigram" if unigram else "BPE of characters"


class FileFacts(NamedTuple):
    """The fields of a card that describe the tokenizer's file."""

    file: str
    vocab: int
    special_tokens: dict[str, int]
    end_of_text: str | None
    tokenizer_sha256: str


def describe_file(
    form: Form | CharBpe, file: Path, data: bytes, ids: dict[int, int] | None = None
) -> FileFacts:
    """Return the file's name, vocabulary size, special tokens and hash. `ids` maps the old id of
    each kept token to its new id; None if ids are unchanged."""
    size, special = form.size, form.special
    if ids is not None:
        size = len(ids)
        special = {token: ids[number] for token, number in special.items()}
    sha256 = hashlib.sha256(data).hexdigest()
    return FileFacts(file.name, size, special, end_token(form), sha256)


Key = bytes | tuple[str, str]  # text of an ordinary token; ("special" or "byte", spelling)


def token_texts(form: Form | CharBpe) -> dict[bytes, float | None]:
    """Return the ordinary tokens in order of ids: {bytes of the token's text: its Unigram score}.
    The score is None for other models."""
    if isinstance(form, Pieces):
        normal = [(text, score) for text, score, kind in form.pieces if kind == NORMAL]
        return {text.replace(SPACE, " ").encode(): score for text, score in normal}
    if isinstance(form, ByteBpe):
        return dict.fromkeys(sorted(form.tokens, key=form.tokens.__getitem__))
    space, texts = space_of(form), sorted(form.tokens, key=form.tokens.__getitem__)
    return {text.replace(space, " ").encode(): None for text in texts}


def space_of(form: CharBpe) -> str:
    """Return the spelling of a space in the tokens of `form`: U+2581 or a plain space."""
    return SPACE if any(SPACE in text for text in form.tokens) else " "


def ids_of(original: Original) -> dict[Key, int]:
    """Return {key: id} for all keys of all tokens (see `keys_of`). A byte-fallback token has two
    keys. If tokens share a key, the dict has the id of the first token whose first key it is. If
    it is only a second key, the dict has the id of the first token with this second key."""
    ids: dict[Key, int] = {}
    keys = keys_of(original)
    for turn in range(2):
        for number, own in keys.items():
            for key in own[turn : turn + 1]:
                ids.setdefault(key, number)
    return ids


def keys_of(original: Original) -> dict[int, tuple[Key, ...]]:
    """Return {id: keys of the token}. The keys identify a token across tokenizers: two tokens are
    the same if they share a key. A byte-fallback token has its byte as a second key."""
    form, end = original.form, end_token(original.form)

    def special(text: str) -> Key:
        return "special", "" if text == end else text

    if isinstance(form, ByteBpe):
        keys: dict[int, tuple[Key, ...]] = {n: (token,) for token, n in form.tokens.items()}
        return keys | {token.number: (special(token.content),) for token in form.added}
    pieces: list[tuple[str, int, bool]]  # text, id, True if ordinary
    if isinstance(form, CharBpe):
        space, fallback = space_of(form), form.byte_fallback
        pieces = [(text, number, True) for text, number in form.tokens.items()]
        pieces += [(text, number, False) for number, text in form.others.items()]
    else:
        space, fallback = SPACE, any(kind == BYTE for _, _, kind in form.pieces)
        pieces = [(text, n, kind == NORMAL) for n, (text, _, kind) in enumerate(form.pieces)]
    keys = {}
    for text, number, is_ordinary in pieces:
        if is_ordinary:
            keys[number] = (text.replace(space, " ").encode(),)
        elif fallback and len(text) == 6 and text.startswith("<0x"):
            keys[number] = ("byte", text), bytes([int(text[3:5], 16)])
        else:
            keys[number] = (special(text),)
    return keys


_SUFFIXES = {Path(name).suffix: kind for kind, name in FILES.items()}


@dataclass(frozen=True)
class Source:
    """A tokenizer to convert. kind: its file format; form: its content, in terms that all formats
    share; reading: functions to encode and decode as its library does; notes: for the card."""

    path: Path
    kind: str
    form: Form
    reading: Reading
    sha256: str
    notes: tuple[str, ...] = ()

    @property
    def encode(self) -> Encode:
        """The function that encodes texts. It does not match special tokens in texts."""
        return self.reading.encode


def kind_of(file: Path) -> str:
    """Return the format of a tokenizer file. Its name shows the format; for .json and .model files
    the content is read, too. Raises UsageError for other names."""
    if is_ranks(file):
        return "tiktoken"
    kind = _SUFFIXES.get(file.suffix)
    if kind is None:
        raise UsageError(
            f"{file}: name a tokenizer.json, tekken.json, .model, .tiktoken or .gguf, or its folder"
        )
    return "tekken.json" if file.suffix == ".json" and is_tekken(file) else kind


def open_source(path: Path, pattern: str | None = None) -> Source:
    """Open a tokenizer to convert. `pattern` names a published pattern, for a .tiktoken file.
    Raises LlmcurateError naming an invalid file, and CannotHold if the tokenizer has a feature that
    only its own format supports."""
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
            reading = by_llama_cpp(form)
            roles = read_roles(file, form.numbers, form.special, form.roles)
        else:
            vocabulary = open_vocabulary(file, pattern)
            roles = vocabulary.roles
            form, reading = _form(kind, vocabulary, notes)
    except CannotHold as error:
        raise CannotHold(f"{file}: {error}") from None
    except (LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
        names = {"gguf": "GGUF file of a tokenizer", "sentencepiece": "SentencePiece model"}
        reason = (str(error) or type(error).__name__).splitlines()[0]
        message = f"{file}: not a {names.get(kind, kind)}: {reason}"
        raise UsageError(message) from None
    form = replace(form, roles=roles)
    return Source(file, kind, form, reading, file_digest(file), tuple(notes))


def _form(kind: str, vocabulary: Vocabulary, notes: list[str]) -> tuple[Form, Reading]:
    raw, encoder = read_file(vocabulary.path), vocabulary.encoder
    if not isinstance(encoder, Encoder):
        pieces = read_form(raw)
        return pieces, Reading(vocabulary.encode, processor_of(pieces).Decode, pieces.added)
    parts = parts_of(encoder.tokenizer)
    form = form_from_json(parts)
    if kind == "tiktoken":
        assert isinstance(form, ByteBpe)
        if listed_special(vocabulary.path) is None:
            added = ", ".join(f"{name} with id {number}" for name, number in form.special.items())
            notes.append(f"no card beside the file lists special tokens: added {added}")
        return form, by_tiktoken(vocabulary.encode, form)
    if vocabulary.dropout:
        notes.append(
            f"dropout {vocabulary.dropout:g} stays in an unchanged tokenizer.json only; it is off"
            " in encoding"
        )
    whole = json.loads(raw)  # loading switched these off
    for name in ("truncation", "padding"):
        if whole.get(name):
            notes.append(f"{name} stays in an unchanged tokenizer.json only")
    return form, by_tokenizers(encoder, added_of(parts))
