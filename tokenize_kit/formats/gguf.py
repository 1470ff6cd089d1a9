"""Tokenizers in the metadata of GGUF files, as llama.cpp reads them.

The package `gguf` reads and writes the files; tensors are neither read nor written. The keys are
listed in the section "Tokenizer" of docs/gguf.md of ggml-org/ggml. Their meaning is that of
llama_vocab::impl::load in llama.cpp's src/llama-vocab.cpp, read in November 2026. Three of
llama.cpp's algorithms are used here: `gpt2` (byte-level BPE, cut by a pattern known by name),
`llama` (SentencePiece BPE) and `t5` (SentencePiece Unigram).
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from llmcurate.base.errors import UsageError
from llmcurate.base.roles import Roles
from tokenize_kit.formats.forms import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Added,
    ByteBpe,
    CannotHold,
    Form,
    Pieces,
)
from tokenize_kit.formats.tokenizer_json import from_letters, to_letters
from tokenize_kit.pattern.automaton import cut_alike
from tokenize_kit.pattern.named import PATTERNS


def _library() -> Any:
    try:
        import gguf
    except ImportError:
        raise UsageError("GGUF files: pip install 'llmcurate[gguf]'") from None
    return gguf


def read_metadata(file: Path) -> dict[str, Value]:
    """Return the keys and values that describe the tokenizer in a GGUF file. Raises LookupError,
    OverflowError, RecursionError, TypeError or ValueError unless the file is a little-endian GGUF
    file of version 2 or 3."""

    class Reader(_library().GGUFReader):  # type: ignore[misc]
        def _get(self, offset: int, dtype: Any, count: int = 1, _: Any = None, **__: Any) -> Any:
            # The library's method returns short arrays from truncated files and takes four times
            # as long.
            return np.frombuffer(self.data, dtype, int(count), offset)

        def _build_tensor_info(self, offs: int, _: int) -> Any:
            return offs, []

    fields = Reader(file).fields
    return {key: fields[key].contents() for key in fields if key.startswith(_PREFIX)}


def write_metadata(metadata: dict[str, Value]) -> bytes:
    """Return the bytes of a GGUF file without tensors: an architecture, which every file needs, and
    then the given keys in order."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.gguf"
        writer = _library().GGUFWriter(file, "llama")
        add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
        for key, value in metadata.items():
            add.get(type(value), writer.add_array)(key, value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return file.read_bytes()


# The values that the library reads and writes.
Value = bool | int | float | str | bytes | list[str] | list[int] | list[float]
_PREFIX = "tokenizer.ggml."
# The keys of roles; "seperator" is llama.cpp's spelling. A text ends at the token of eos (end of
# text), eom (end of message) or eot (end of turn).
_ROLES = {"begin": "bos", "pad": "padding", "sep": "seperator"}
_ROLES |= {role: role for role in ("unknown", "cls", "mask")}
_FURTHER_ENDS = ("eot", "eom")  # if there are several ends, the last one is eot
# The ids that llama.cpp takes if the keys are missing.
_DEFAULT_BEGIN, _DEFAULT_END = {"gpt2": 11, "llama": 1}, {"gpt2": 11, "llama": 2, "t5": 1}
AROUND = "the tokens that the tokenizer puts around a text are not converted"

_LETTERS = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"(?:(?=[\p{L}])(?:[^a-z]))", r"(?:(?=[\p{L}])(?:[^A-Z]))"
_SHORT = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# llama.cpp's patterns by name, in Oniguruma's syntax. Its gpt-4o is not OpenAI's: only ASCII
# letters have cases, and marks are not letters.
LLAMA_CPP: dict[str, tuple[str, ...]] = {
    "gpt-2": PATTERNS["gpt2"].parts,
    "llama-bpe": (rf"{_SHORT}|{_LETTERS}\p{{L}}+|\p{{N}}{{1,3}}|{_REST}",),
    "qwen2": (rf"{_SHORT}|{_LETTERS}\p{{L}}+|\p{{N}}|{_REST}",),
    "gpt-4o": (
        rf"{_LETTERS}{_UPPER}*{_LOWER}+{_SHORT}?|{_LETTERS}{_UPPER}+{_LOWER}*{_SHORT}?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    "deepseek-v3": PATTERNS["deepseek"].parts,
    "smollm": (r"\p{N}", *PATTERNS["gpt2"].parts),
}
# Other names of the same patterns.
_ALIKE = {
    "gpt-2": ("phi-2", "mpt", "olmo", "jina-es", "jina-de", "modern-bert", "exaone4"),
    "llama-bpe": ("llama3", "llama-v3", "falcon3", "pixtral", "lfm2"),
    "qwen2": ("deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan"),
    "gpt-4o": ("llama4", "kanana2", "minimax-m2"),
    "deepseek-v3": ("hunyuan-dense",),
    "smollm": ("starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
}
_NAMES = {alike: name for name, others in _ALIKE.items() for alike in others}
# Patterns with which a piece that is a token becomes that token, even if merging gives others.
WHOLE = frozenset({"llama-bpe"})


# Tokens that llama.cpp makes special because of their names, and special tokens that it matches in
# every text (llama_vocab::impl::load).
_CONTROL = frozenset(
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn>"
    " <|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance>"
    " <eos> <turn|> <|tool_response> <｜end▁of▁sentence｜> [e~[ <|fim_prefix|> <fim-prefix>"
    " <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|> <|fim_suffix|>"
    " <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|>"
    " <|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|>"
    " <|middle|> <|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|> <fim-repo>"
    " <REPO> <reponame> <|file_sep|>".split()
)
_MATCHED = frozenset("<|channel|> <|message|> <|start|> <|constrain|>".split())


def _head(model: str, tokens: list[str], types: list[int], roles: Roles) -> dict[str, Value]:
    default = _DEFAULT_END[model]
    if not roles.ends and default < len(types) and types[default] not in (CONTROL, UNUSED):
        raise CannotHold(
            "nothing says which token ends a text, and llama.cpp would take an ordinary one"
            f" (id {default}, {tokens[default]!r}): name it (--eos-token)"
        )
    ids = {key: getattr(roles, role) for role, key in _ROLES.items()}
    ids |= {"eos": roles.end} | dict(zip(_FURTHER_ENDS, roles.ends[:0:-1], strict=False))
    keys: dict[str, Value] = {"model": model, "tokens": tokens, "token_type": types}
    keys |= {f"{key}_token_id": number for key, number in ids.items() if number is not None}
    # By default, llama.cpp puts a token before or behind some texts.
    keys["add_bos_token"] = roles.before == (roles.begin,)
    keys["add_eos_token"] = roles.behind == (roles.end,)
    return {f"{_PREFIX}{key}": value for key, value in keys.items()}


def role_notes(form: Form, metadata: dict[str, Value]) -> list[str]:
    """Return a sentence on each role of special tokens that the GGUF file cannot state. metadata:
    the file's keys and values."""
    roles, tokens, notes = form.roles, metadata[f"{_PREFIX}tokens"], []
    assert isinstance(tokens, list)
    adds = [metadata[f"{_PREFIX}add_{name}_token"] for name in ("bos", "eos")]
    if adds != [bool(roles.before), bool(roles.behind)]:
        notes.append(AROUND)
    model = str(metadata[f"{_PREFIX}model"])
    for does, option, known, default in (
        ("begins", "bos", roles.begin is not None, _DEFAULT_BEGIN.get(model, len(tokens))),
        ("ends", "eos", bool(roles.ends), _DEFAULT_END[model]),
    ):
        if not known and default < len(tokens):
            taken = f"llama.cpp takes {tokens[default]!r}"
            notes.append(f"no file says which token {does} a text (--{option}-token): {taken}")
    if dropped := roles.ends[1:-2]:
        names = ", ".join(repr(tokens[number]) for number in dropped)
        notes.append(f"a GGUF file has three ends of text at most: {names} is left out")
    return notes


def known_difference(form: Form) -> str:
    """Return the known reason why llama.cpp gives other ids for some texts, or an empty string."""
    if isinstance(form, ByteBpe) and form.parts == PATTERNS["o200k"].parts:
        return (
            "; llama.cpp's gpt-4o is not o200k: marks are not letters there, and only ASCII letters"
            " have cases"
        )
    return ""


def names_in(metadata: dict[str, Value]) -> dict[str, str]:
    """Return {key: value} of llama.cpp's names for the kind of tokenizer and for its pattern."""
    keys = (f"{_PREFIX}model", f"{_PREFIX}pre")
    return {key: str(metadata[key]) for key in keys if key in metadata}


def to_metadata(form: Form) -> dict[str, Value]:
    """Return the keys and values of a GGUF file for a tokenizer, `form`. Raises CannotHold naming
    the feature that llama.cpp does not support."""
    return _byte_bpe(form) if isinstance(form, ByteBpe) else _pieces(form)


def _byte_bpe(form: ByteBpe) -> dict[str, Value]:
    patterns = {p.gguf: p.parts for p in PATTERNS.values() if p.gguf}
    # convert() compares ids, so it finds texts that a similar pattern cuts differently.
    fit = [*patterns.items(), ("gpt-4o", PATTERNS["o200k"].parts), *LLAMA_CPP.items()]
    name = next((n for n, parts in fit if cut_alike(form.parts, parts)), None)
    if name is None:
        raise CannotHold(
            f"llama.cpp only supports the patterns {', '.join(LLAMA_CPP)}, and this is another one:"
            " train a tokenizer with --pattern llama3"
        )
    if form.whole and name not in WHOLE:
        merged = {left + right for left, right in form.merges}
        if any(len(token) > 1 and token not in merged for token in form.tokens):
            raise CannotHold(
                f"llama.cpp's {name} needs a merge for every token, and some have none"
            )
    if not form.merges:
        raise CannotHold("llama.cpp needs merges, and this tokenizer has none")
    tokens = [f"[PAD{number}]" for number in range(form.size)]
    types = [UNUSED] * form.size
    for token, number in form.tokens.items():
        tokens[number], types[number] = to_letters(token), NORMAL
    for added in form.added:
        tokens[added.number] = added.content
        types[added.number] = CONTROL if added.special else USER_DEFINED
    if len(set(tokens)) != len(tokens):
        raise CannotHold("two of its tokens have the same text")
    merges = [f"{to_letters(left)} {to_letters(right)}" for left, right in form.merges]
    return {
        **_head("gpt2", tokens, types, form.roles),
        f"{_PREFIX}pre": name,
        f"{_PREFIX}merges": merges,
    }


def _pieces(form: Pieces) -> dict[str, Value]:
    unigram = form.kind == "unigram"
    defined = [text for text, _, kind in form.pieces if kind == USER_DEFINED]
    t5, llama = "llama.cpp's Unigram (t5)", "llama.cpp's SentencePiece BPE (llama)"
    refused = {
        f"{t5} has no byte fallback": unigram and form.byte_fallback,
        f"{t5} scores user-defined pieces differently": unigram and defined,
        f"{llama} needs pieces for all bytes": not unigram and not form.byte_fallback,
        f"{llama} does not normalize text": not unigram and form.charsmap,
        f"{llama} keeps spaces that this tokenizer drops": not unigram and form.squeeze,
        "llama.cpp would match its user-defined pieces with plain spaces in the text": any(
            " " in text for text in defined
        ),
        "two of its pieces have the same text": len(form.numbers) != len(form.pieces),
    }
    if reason := next((reason for reason, holds in refused.items() if holds), None):
        raise CannotHold(reason)
    texts, scores, types = (list(column) for column in zip(*form.pieces, strict=True))
    # llama.cpp matches user-defined pieces before it writes spaces as U+2581.
    texts = [
        text.replace(SPACE, " ") if kind == USER_DEFINED else text for text, _, kind in form.pieces
    ]
    metadata = {
        **_head("t5" if unigram else "llama", texts, types, form.roles),
        f"{_PREFIX}scores": scores,
        f"{_PREFIX}unknown_token_id": form.unknown,
        f"{_PREFIX}add_space_prefix": form.prefix,
    }
    if unigram:
        metadata[f"{_PREFIX}remove_extra_whitespaces"] = form.squeeze
        if form.charsmap:
            metadata[f"{_PREFIX}precompiled_charsmap"] = form.charsmap
    return metadata


def from_metadata(values: dict[str, Value]) -> Form:
    """Return the tokenizer of a GGUF file as llama.cpp would run it. Raises ValueError for missing
    keys and values of another type, and CannotHold for tokenizers that cannot be converted."""
    model = values.get(f"{_PREFIX}model")
    if not isinstance(model, str):
        raise ValueError(f"it has no {_PREFIX}model, so no vocabulary")
    if model not in ("gpt2", "llama", "t5"):
        raise CannotHold(f"llama.cpp's tokenizer model {model!r} cannot be converted")
    tokens = _list(values, "tokens", str)
    types = _list(values, "token_type", int, [NORMAL] * len(tokens))
    if not tokens or len(types) != len(tokens):
        raise ValueError("it has no tokens, or not one type per token")
    unknown = values.get(
        f"{_PREFIX}unknown_token_id", types.index(UNKNOWN) if UNKNOWN in types else 0
    )
    pairs = enumerate(zip(tokens, types, strict=True))
    types = [UNKNOWN if n == unknown and model != "gpt2" else _type(*pair) for n, pair in pairs]
    if model == "gpt2":
        return _read_bpe(values, tokens, types)
    scores = _list(values, "scores", float, [0.0] * len(tokens))
    if len(scores) != len(tokens) or UNKNOWN not in types:
        raise ValueError("it does not have one score per token, or no unknown token")
    texts = [
        t.replace(" ", SPACE) if k == USER_DEFINED else t
        for t, k in zip(tokens, types, strict=True)
    ]
    rows = tuple(zip(texts, scores, types, strict=True))
    unigram = model == "t5"
    charsmap = bytes(byte & 255 for byte in _list(values, "precompiled_charsmap", int, []))
    return Pieces(
        "unigram" if unigram else "bpe",
        rows,
        charsmap if unigram else b"",
        bool(values.get(f"{_PREFIX}add_space_prefix", not unigram)),
        unigram and bool(values.get(f"{_PREFIX}remove_extra_whitespaces", False)),
        BYTE in types and not unigram,
        _read_roles(values, len(tokens), before=not unigram, behind=unigram),
    )


def _type(token: str, kind: int) -> int:
    """Convert SentencePiece's type of a token (not the unknown one) to llama.cpp's."""
    if token in _MATCHED:
        return USER_DEFINED
    return CONTROL if kind == UNKNOWN or (kind == USER_DEFINED and token in _CONTROL) else kind


def _read_bpe(values: dict[str, Value], tokens: list[str], types: list[int]) -> ByteBpe:
    pre = values.get(f"{_PREFIX}pre")
    pre = _NAMES.get(pre, pre) if isinstance(pre, str) else pre
    if not isinstance(pre, str) or pre not in LLAMA_CPP:
        raise CannotHold(
            f"llama.cpp's pattern {pre!r} is not supported; use {', '.join(LLAMA_CPP)}"
        )
    plain: dict[bytes, int] = {}
    added = []
    for number, (token, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind in (CONTROL, USER_DEFINED, UNKNOWN):
            added.append(Added(token, number, kind != USER_DEFINED))
        elif kind != UNUSED:
            plain[_raw(token)] = number
    if any(bytes([byte]) not in plain for byte in range(256)):
        raise CannotHold("its vocabulary does not have all 256 bytes")
    merges = []
    for line in _list(values, "merges", str):
        left, space, right = line[1:].partition(" ")
        pair = _raw(line[:1] + left), _raw(right)
        if not space or pair[0] + pair[1] not in plain:
            raise ValueError(f"the result of the merge {line!r} is not a token")
        merges.append(pair)
    whole = pre in WHOLE
    roles = _read_roles(values, len(tokens), before=whole, behind=False)
    return ByteBpe(plain, tuple(merges), LLAMA_CPP[pre], tuple(added), whole, roles)


def _raw(token: str) -> bytes:
    try:
        return from_letters(token)
    except KeyError:
        raise ValueError(f"the token {token!r} is not spelled in the letters of bytes") from None


def _list(values: dict[str, Value], key: str, kind: type, default: list[Any] | None = None) -> Any:
    entries = values.get(f"{_PREFIX}{key}", default)
    if not isinstance(entries, list) or any(type(value) is not kind for value in entries):
        raise ValueError(f"{_PREFIX}{key} is missing or not an array of {kind.__name__}")
    return entries


def _read_roles(values: dict[str, Value], size: int, *, before: bool, behind: bool) -> Roles:
    """Return the roles of special tokens that a GGUF file's keys state. before, behind: the values
    of the keys add_bos_token and add_eos_token if the file lacks them."""
    ids: dict[str, Any] = {}
    for key in (*_ROLES.values(), "eos", *_FURTHER_ENDS[::-1]):
        number = values.get(f"{_PREFIX}{key}_token_id")
        if number is not None and not (isinstance(number, int) and 0 <= number < size):
            raise ValueError(f"{_PREFIX}{key}_token_id is not the id of a token")
        ids[key] = number
    named = {role: ids.pop(key) for role, key in _ROLES.items()}
    ends = tuple(dict.fromkeys(number for number in ids.values() if number is not None))
    begin = () if named["begin"] is None else (named["begin"],)
    return Roles(
        **named,
        ends=ends,
        before=begin if values.get(f"{_PREFIX}add_bos_token", before) else (),
        behind=ends[:1] if values.get(f"{_PREFIX}add_eos_token", behind) else (),
    )
