"""The tokens of tokenizers of different models, as what they spell: so that two can be compared."""

from __future__ import annotations

from functools import partial

from tokenize_kit.change.bpe import CharBpe
from tokenize_kit.change.original import Original, end_token
from tokenize_kit.formats.forms import BYTE, NORMAL, SPACE, ByteBpe, Form, Pieces

Key = bytes | tuple[str, str]  # the text of an ordinary token; ("special" or "byte", its spelling)


def token_texts(form: Form | CharBpe) -> dict[bytes, float | None]:
    """The ordinary tokens as bytes of text, in order of their ids, to their scores in a Unigram."""
    if isinstance(form, Pieces):
        normal = [(text, score) for text, score, kind in form.pieces if kind == NORMAL]
        return {text.replace(SPACE, " ").encode(): score for text, score in normal}
    if isinstance(form, ByteBpe):
        return dict.fromkeys(sorted(form.tokens, key=form.tokens.__getitem__))
    space, texts = space_of(form), sorted(form.tokens, key=form.tokens.__getitem__)
    return {text.replace(space, " ").encode(): None for text in texts}


def space_of(form: CharBpe) -> str:
    """How its tokens spell a space: U+2581, or as it is."""
    return SPACE if any(SPACE in text for text in form.tokens) else " "


def ids_of(original: Original) -> dict[Key, int]:
    """All keys of tokens to their ids; of two with one key the first, whose own it is."""
    ids: dict[Key, int] = {}
    keys = keys_of(original)
    for turn in range(2):
        for number, own in keys.items():
            for key in own[turn : turn + 1]:
                ids.setdefault(key, number)
    return ids


def keys_of(original: Original) -> dict[int, tuple[Key, ...]]:
    """Ids to the keys of their tokens, their own first; a byte that is spelled apart from the
    character is that character where there is no such byte."""
    form, end = original.form, end_token(original.form)
    special = partial(_special, end)
    if isinstance(form, ByteBpe):
        keys: dict[int, tuple[Key, ...]] = {n: (token,) for token, n in form.tokens.items()}
        return keys | {token.number: (special(token.content),) for token in form.added}
    pieces: list[tuple[str, int, bool]]  # text, id, whether it is ordinary
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


def _special(end: str | None, text: str) -> Key:
    return "special", "" if text == end else text
