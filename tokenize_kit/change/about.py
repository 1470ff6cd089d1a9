"""What the card of a changed tokenizer says of it, whatever was changed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tokenize_kit.change.char_bpe import CharBpe
from tokenize_kit.change.forms import ByteBpe, Form, Pieces
from tokenize_kit.encode.spm_model import CONTROL
from tokenize_kit.learn.options import END_OF_TEXT


def end_of(form: Form | CharBpe) -> str | None:
    """The spelling of the token that ends a document, if there is one."""
    if isinstance(form, ByteBpe | CharBpe):
        special = {token.content for token in form.added if token.special}
    elif 0 <= form.end < len(form.pieces):
        return form.pieces[form.end][0]
    else:
        special = {text for text, _, kind in form.pieces if kind == CONTROL}
    return next((name for name in END_OF_TEXT if name in special), None)


def algorithm_of(form: Form | CharBpe) -> str:
    """What it is, as cards name it."""
    if isinstance(form, ByteBpe):
        return "byte-level BPE"
    unigram = isinstance(form, Pieces) and form.kind == "unigram"
    return "Unigram" if unigram else "BPE of characters"


def described(
    form: Form | CharBpe, file: Path, data: bytes, ids: dict[int, int] | None = None
) -> dict[str, Any]:
    """What the card of any tokenizer has: its file, that file's hash, tokens, special tokens.

    ids: the new ids of old tokens, of those that stay; none: they are as in the form.
    """
    if isinstance(form, ByteBpe | CharBpe):
        size, special = form.size, {t.content: t.number for t in form.added if t.special}
    else:
        size = len(form.pieces)
        special = {t: n for n, (t, _, kind) in enumerate(form.pieces) if kind == CONTROL}
    if ids is not None:
        size = len(ids)
        special = {token: ids[number] for token, number in special.items()}
    return {
        "file": file.name,
        "vocab": size,
        "special_tokens": special,
        "end_of_text": end_of(form),
        "tokenizer_sha256": hashlib.sha256(data).hexdigest(),
    }
